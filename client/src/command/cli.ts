#!/usr/bin/env node
import { main } from './main.ts';

process.exitCode = await main(process.argv.slice(2));
// Remaining handles (kept connections of fetch) must not hold the terminal.
process.exit();
