"""A module that no nursery can be forked after."""

import threading
import time

threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
