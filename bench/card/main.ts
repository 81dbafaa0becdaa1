/**
 * Measures what a GPU is worth: `bare`, engines that always find work, by how many there are and
 * how many images they take at once; `service`, all kept full over REST, with what limits it;
 * `interface`, the ways to call ONNX Runtime.
 * docs/gpu.md says what to read off. Without a GPU it measures a CPU the same way.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { machine } from '../service.ts';
import { measureBare } from './bare.ts';
import { openCard } from './card.ts';
import { measureInterface } from './interface.ts';
import { type AddRow, type Figures, readOptions } from './options.ts';
import { measureService } from './service-load.ts';

/** A signal ends what it started. */
const ending = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => ending.abort(new Error('told to end')));
}
const options = readOptions();
const card = await openCard(options, ending.signal);
const { provider } = options;
const results: Record<string, unknown> = {
  ...{ measuredAt: new Date().toISOString(), machine: machine(), provider },
  gpu: card.gpu && `${card.gpu.name}, driver ${card.gpu.driver}`,
};
const MEASURES = { bare: measureBare, service: measureService, interface: measureInterface };
const folder = path.join(import.meta.dirname, '../results');
const file = path.join(folder, provider === 'cuda' ? 'card.json' : `card-${provider}.json`);
mkdirSync(folder, { recursive: true });
try {
  for (const section of options.only) {
    const rows: Record<string, Figures> = {};
    const addRow: AddRow = async (name, measure) => {
      if (ending.signal.aborted) return;
      try {
        rows[name] = await measure();
      } catch (error) {
        rows[name] = { error: (error as Error).message.split('\n')[0] };
        process.exitCode = 1;
      }
      // Results are written at once: an end in the middle loses nothing.
      writeFileSync(file, `${JSON.stringify({ ...results, [section]: rows }, undefined, 2)}\n`);
      console.log(
        `${section}: ${name}: ${rows[name].error ?? `${rows[name].imagesPerS} a second`}`,
      );
    };
    await MEASURES[section](card, addRow);
    results[section] = rows;
    console.table(rows);
  }
  console.log(file);
} finally {
  card.close();
}
