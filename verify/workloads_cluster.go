package verify

// clusterWorkloads are those about M, L and E.
var clusterWorkloads = []*Workload{}
