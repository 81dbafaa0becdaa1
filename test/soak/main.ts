/** Runs the named soaks, else all; exits 0 only if some passed and none failed. */
import path from 'node:path';
import { concludeWith, runAva } from '../support/run-ava.ts';

/** `<name>.soak.ts`: what it proves, and minutes on two cores, rounded up. */
const SOAKS = [
  {
    name: 'large-tables',
    about:
      'a million jobs, 200,000 due notifications, 3,000,000 ledger entries: no statement reads more',
    minutes: 20,
  },
  {
    name: 'ledger',
    about: 'three million ledger entries are checked beside traffic; says what that costs',
    minutes: 10,
  },
];

const names = process.argv.slice(2);
const unknown = names.filter(name => !SOAKS.some(soak => soak.name === name));
const chosen = SOAKS.filter(soak => names.length === 0 || names.includes(soak.name));
if (unknown.length > 0 || chosen.length === 0) {
  const known = SOAKS.map(soak => soak.name).join(', ');
  console.error(`no soak is called ${unknown.join(', ')}; there are: ${known}`);
  process.exit(64);
}

const minutes = chosen.reduce((sum, soak) => sum + soak.minutes, 0);
console.log(`${chosen.length} soaks, about ${minutes} minutes on two cores:`);
for (const soak of chosen) console.log(`  ${soak.name} (${soak.minutes} min): ${soak.about}`);

/** Multiple of a soak's length after which it counts as hung. */
const PATIENCE = 5;
const timeoutMs = Math.max(...chosen.map(soak => soak.minutes)) * PATIENCE * 60_000;
const files = chosen.map(soak => path.join(import.meta.dirname, `${soak.name}.soak.ts`));
concludeWith([await runAva({ files, concurrency: 1, timeoutMs })]);
