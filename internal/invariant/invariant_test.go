package invariant

import "testing"

func TestCheckHolds(t *testing.T) {
	Check(true, "never shown")
}

func TestCheckPanicsWithItsText(t *testing.T) {
	defer func() {
		const want = "broken invariant: txid 7 follows 5"
		if got := recover(); got != want {
			t.Fatalf("panic: %v, want %q", got, want)
		}
	}()
	Check(false, "txid %d follows %d", 7, 5)
}
