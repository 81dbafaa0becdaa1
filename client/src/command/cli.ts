#!/usr/bin/env node
/** `matting-remove`, the command of the package. */
import { main } from './main.ts';

process.exitCode = await main(process.argv.slice(2));
// Open handles (keep-alive connections of fetch) would keep the process running.
process.exit();
