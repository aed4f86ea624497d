"use strict";
headspan.figures.start();
