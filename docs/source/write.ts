/** Writes what follows from declarations, or into the folders that are named. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { clientFields } from './client-fields.ts';
import { settingsPage, variableNames } from './settings.ts';

const root = path.resolve(import.meta.dirname, '../..');
const [
  docs = path.join(root, 'docs'),
  program = path.join(root, 'program'),
  client = path.join(root, 'client/src'),
] = process.argv.slice(2);
writeFileSync(path.join(docs, 'settings.md'), settingsPage());
writeFileSync(path.join(client, 'finishing-fields.ts'), clientFields());
const names = `${JSON.stringify(variableNames(), undefined, 2)}\n`;
writeFileSync(path.join(program, 'variable-names.json'), names);
