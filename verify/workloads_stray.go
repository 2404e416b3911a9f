package verify

// strayWorkloads are those about answers that nobody waits for, and frames that cannot be read.
var strayWorkloads = []*Workload{}
