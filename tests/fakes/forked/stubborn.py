"""A module after whose import a fork server cannot fork."""

import threading
import time

threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
