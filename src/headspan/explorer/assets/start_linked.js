"use strict";
headspan.state.start();
headspan.figures.start();
