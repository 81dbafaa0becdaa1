/** Writes the documents that follow from declarations, or into the folders that are named. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { settingsPage, variableNames } from './settings.ts';

const root = path.resolve(import.meta.dirname, '../..');
const [docs = path.join(root, 'docs'), program = path.join(root, 'program')] =
  process.argv.slice(2);
writeFileSync(path.join(docs, 'settings.md'), settingsPage());
const names = `${JSON.stringify(variableNames(), undefined, 2)}\n`;
writeFileSync(path.join(program, 'variable-names.json'), names);
