#!/usr/bin/env node
/** `matting-remove`, the command of the package. */
import { main } from './main.ts';

process.exitCode = await main(process.argv.slice(2));
// Handles that are left (a fetch's keep-alive connections) must not hold the terminal.
process.exit();
