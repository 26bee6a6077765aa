package filesink

import (
	"fmt"
	"time"
)

// Unit is how long the time is whose rows share a folder.
type Unit string

// The units. Days and hours are those of UTC.
const (
	Day  Unit = "day"
	Hour Unit = "hour"
)

// NoTime is what folders of rows without a time are named by. Hive and those who read its folders take it for null.
const NoTime = "__HIVE_DEFAULT_PARTITION__"

// Folder is the folder of the rows of a time: day=2026-01-31, or day=2026-01-31/hour=07. The zero time stands for none.
func Folder(at time.Time, unit Unit) string {
	day, hour := NoTime, NoTime
	if !at.IsZero() {
		at = at.UTC()
		day, hour = at.Format(time.DateOnly), at.Format("15")
	}
	if unit == Day {
		return "day=" + day
	}
	return fmt.Sprintf("day=%s/hour=%s", day, hour)
}

// Check says what is wrong with the unit.
func (u Unit) Check() error {
	if u != Day && u != Hour {
		return fmt.Errorf("by: %q is neither day nor hour", u)
	}
	return nil
}
