/** Prints a measurement and keeps it as JSON beside the machine's description. */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { machine } from './service.ts';

const FOLDER = path.join(import.meta.dirname, 'results');

export function writeResults(name: string, results: Record<string, unknown>): void {
  mkdirSync(FOLDER, { recursive: true });
  const all = { measuredAt: new Date().toISOString(), machine: machine(), ...results };
  writeFileSync(path.join(FOLDER, `${name}.json`), `${JSON.stringify(all, undefined, 2)}\n`);
  console.log(`\n${name}`);
  for (const [key, value] of Object.entries(results)) {
    const shown = typeof value === 'number' ? value.toPrecision(4) : JSON.stringify(value);
    console.log(`  ${key.padEnd(34)} ${shown}`);
  }
}
