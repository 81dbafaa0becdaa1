/** Only the root's manifest has the version. */
import { readFileSync } from 'node:fs';
import path from 'node:path';

const MANIFEST = path.resolve(import.meta.dirname, '../package.json');

export const VERSION: string = JSON.parse(readFileSync(MANIFEST, 'utf8')).version;
