package verify

// paceWorkloads are those about pauses: of the client, and between its connections.
var paceWorkloads = []*Workload{}
