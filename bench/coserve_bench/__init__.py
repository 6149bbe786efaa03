"""Co-serving measured against SGLang itself: same machine, same arrivals, same slots and memory."""
