package words

import "testing"

func TestDidYouMean(t *testing.T) {
	words := []string{"single", "immediate", "expired", "late-reply"}
	for word, want := range map[string]string{
		"single": "single", "singl": "single", "SINGLE": "single", "late_reply": "late-reply", "lat-repl": "late-reply",
		"imediat": "immediate", "xyz": "", "": "", "completely-different": "",
	} {
		if want != "" {
			want = "; did you mean " + want + "?"
		}
		if got := DidYouMean(word, words); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
