package main

import (
	"fmt"
	"math"
	"slices"
)

func (s sample) rate() float64      { return s.Rate }
func (s sample) cpu() float64       { return s.CPU }
func (s sample) walsender() float64 { return s.WalsenderCPU }
func (s sample) peak() float64      { return s.PeakRSS }
func (s sample) warmRate() float64  { return s.WarmRate }
func (s sample) warmCPU() float64   { return s.WarmCPU }
func (s sample) first() float64     { return s.First }
func (s sample) broker() float64    { return s.BrokerCPU }
func (s sample) busy() float64      { return s.WalsenderBusy }
func (s sample) stored() float64    { return s.Stored }

// of returns a figure of a contender, by round; 0 where it was not known.
func (d *drained) of(contender string, figure func(sample) float64) map[int]float64 {
	values := map[int]float64{}
	for _, s := range d.Samples {
		if s.Contender == contender {
			values[s.Round] = figure(s)
		}
	}
	return values
}

// values of a contender's figure that are known.
func (d *drained) values(contender string, figure func(sample) float64) (known []float64) {
	for _, value := range d.of(contender, figure) {
		if value > 0 {
			known = append(known, value)
		}
	}
	return known
}

// pairs are two contenders' figures over each other, of the rounds both were in.
func (d *drained) pairs(a string, x func(sample) float64, b string, y func(sample) float64) (ratios []float64) {
	under := d.of(b, y)
	for round, over := range d.of(a, x) {
		if over > 0 && under[round] > 0 {
			ratios = append(ratios, over/under[round])
		}
	}
	return ratios
}

// spread is a median with its range.
func spread(values []float64, digits int) string {
	switch len(values) {
	case 0:
		return "-"
	case 1:
		return fmt.Sprintf("%.*f", digits, values[0])
	}
	return fmt.Sprintf("%.*f [%.*f-%.*f]", digits, median(values), digits, slices.Min(values), digits, slices.Max(values))
}

// median is 0 of nothing.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

func round(value float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(value*scale) / scale
}
