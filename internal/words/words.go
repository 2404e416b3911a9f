// Package words helps with words that somebody has misspelt.
package words

import (
	"fmt"
	"sort"
	"strings"
)

// DidYouMean returns "; did you mean …?" with the nearest words, or "".
func DidYouMean(word string, words []string) string {
	type near struct {
		w string
		d int
	}
	var list []near
	most := max(2, len(word)/3)
	for _, w := range words {
		prefix := len(word) >= 3 && strings.HasPrefix(w, strings.ToLower(word))
		if n := len(w) - len(word); !prefix && (n > most || -n > most) {
			continue
		}
		d := distance(strings.ToLower(word), w)
		if prefix {
			d = 1
		}
		if d <= most {
			list = append(list, near{w, d})
		}
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].d < list[j].d })
	if len(list) == 0 {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", list[0].w)
}

// distance is the number of single-byte edits between two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diag, row[j] = row[j], min(row[j]+1, row[j-1]+1, diag+cost)
		}
	}
	return row[len(b)]
}
