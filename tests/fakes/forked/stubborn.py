"""A module that no fork server can be forked after."""

import threading
import time

threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
