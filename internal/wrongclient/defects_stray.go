package wrongclient

// Defects and oddities about answers that nobody waits for, and frames that cannot be read.
const ()

var strayDefects = []Defect{}

var strayOdd = []defect{}
