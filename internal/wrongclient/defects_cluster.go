package wrongclient

// Defects and oddities about M, L and E.
const ()

var clusterDefects = []Defect{}

var clusterOdd = []defect{}
