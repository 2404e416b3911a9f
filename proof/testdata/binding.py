import lockclient
keys = {}
def connect(addr):
    global client
    client = lockclient.Client(addr)
def acquire(n, key, wait, lease):
    keys[n] = key
    return client.acquire(key, int(wait), int(lease))
def release(n): return client.release(keys[n])
