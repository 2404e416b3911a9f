package wrongclient

// pauses tells whether the client lets some time pass before it makes another
// connection to an address.
func (d defect) pauses() bool { return d != reconnectHot }
