// Package repeat sums up in a log what happens again and again: a night without a
// broker is a handful of lines, and none of them is missed.
//
//	trouble     x  x x x x x x x x x x x x x x x x x x x x           x
//	well                                                    o          o  ...
//	told        1st        1 min      +2 min        +4 min  ok         |  over
//	                       (5 times)  (10 times)            (22 times, |  (23 times)
//	                                                         for 9 min)|
//	                                       so soon again: the same episode
//
// Invariants:
//   - The first trouble of an episode is told, and each that says something else,
//     up to maxTexts of them; beyond, one at growing pauses. What comes and goes is
//     told of at those pauses only. So an hour has a few lines.
//   - The last line is no lie: Well is told when it told of trouble, trouble that
//     lasts for a minute when it said that all is well, and Over when there was more
//     than the lines have said.
//   - It decides and does nothing: no clock, no log.
//
// What surprised us: errors hold ports and durations, so that no two are the same
// text; and what comes and goes every second (a broker that takes connections and
// ends them) is never down for long enough to be one trouble. Hence the bound on
// texts, and the calm that ends an episode.
package repeat
