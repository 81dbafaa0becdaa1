/** The tests that every target runs: of the store, of two control planes, of webhooks, of kills. */
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';

const ROOT = path.resolve(import.meta.dirname, '../..');

const PLACES = [
  'control-plane/test/store/**/*.test.ts',
  'control-plane/test/services/notification/*.test.ts',
  'control-plane/test/services/dispatch/*.test.ts',
  // Two control planes, their notifications, and those that die or stand still.
  'control-plane/test/compose/replicas.test.ts',
  'control-plane/test/compose/{kills,stopped,database-outage}.storm.ts',
];

/** A test that never asks for a server would only repeat what `make test` has shown. */
const ASKS_FOR_SERVER = /\bDIALECTS\b|\bon(Databases|Stores)\(|skipReason\('mysql'\)/;

/** Relative to the project's directory. */
export function suiteFiles(): string[] {
  return PLACES.flatMap(place => globSync(place, { cwd: ROOT }))
    .filter(file => ASKS_FOR_SERVER.test(readFileSync(path.join(ROOT, file), 'utf8')))
    .sort();
}
