package wrongclient

// Defects and oddities about which sessions a client keeps.
const ()

var sessionDefects = []Defect{}

var sessionOdd = []defect{}
