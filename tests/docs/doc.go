// Package docs runs the commands of the documentation. A block
//
//	```sh
//
// of README.md or docs/*.md is run by bash in the folder of the checkout, with the environment that the blocks before it in the
// same page left. Words behind sh say what is different:
//
//	exit=4         the last command ends with this code, else with 0
//	until=TEXT     the block stays running; the next one begins when it has printed TEXT (underscores stand for spaces). It is
//	               interrupted after the page, and must end well
//	skip=REASON    it is not run
//
// A comment behind a block gives a variable the text that an expression finds in what the block printed; a line of a later
// block that sets the variable for people is left out:
//
//	<!-- capture MANIFEST: redrive dry-run ([0-9a-f]{12}) -->
//
// The folder .demo of the pages is a fresh one.
package docs
