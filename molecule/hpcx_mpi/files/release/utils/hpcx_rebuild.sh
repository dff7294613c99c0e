#!/bin/sh
# Stands in for the vendor's script: writes down what it was asked for.
echo "$@" > built
