/** Programs that tests start inherit nothing of the tests' environment. */
import path from 'node:path';

const COMPILED = path.resolve(import.meta.dirname, '../../node_modules/.cache/compiled');

/** Compile cache, as in `bin/node24`; halves a start's processor time. */
export const CACHE_ENV = { NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE ?? COMPILED };

export const STARTED_ENV = { PATH: process.env.PATH ?? '', ...CACHE_ENV };
