package verify

// sessionWorkloads are those about which sessions a client keeps.
var sessionWorkloads = []*Workload{}
