/**
 * Everything that there is to say of a card: engines alone, mattes against the CPU's, the service
 * over REST and gRPC, faults under load, minutes at full load, and what is wanted of it. Sections
 * can be chosen and have bounds of time; each result is in one file at once, and is printed as a
 * table for docs/performance.md. Without a GPU it measures a CPU the same way (`--provider cpu`).
 */
import { availableParallelism } from 'node:os';
import { measureBare } from './bare.ts';
import { type Card, openCard } from './card.ts';
import { CardFile, type SectionName } from './card-file.ts';
import { measureFaults } from './faults.ts';
import { type CardOptions, readOptions } from './options.ts';
import { measureParity } from './parity.ts';
import { describeSection } from './print.ts';
import { Section } from './section.ts';
import { measureService } from './service-load.ts';
import { measureSteady } from './steady.ts';

type Measured = Exclude<SectionName, 'goals'>;

const MEASUREMENTS: Readonly<Record<Measured, (card: Card, section: Section) => Promise<void>>> = {
  bare: measureBare,
  parity: measureParity,
  service: measureService,
  faults: measureFaults,
  steady: measureSteady,
};

function isMeasured(name: SectionName): name is Measured {
  return name !== 'goals';
}

/** After its time a section may end what is under way; then it is left alone, with what it has. */
const ENDING_MAX_S = 60;

/** Told to end, however often, it ends what it started and puts back what it took. */
const told = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => told.abort(new Error('told to end')));
}

async function measure(name: Measured, card: Card, file: CardFile): Promise<void> {
  const { seconds } = card.options;
  const section = new Section(name, { file, seconds, ending: told.signal });
  const { promise: hung, reject } = Promise.withResolvers<never>();
  const lateMs = 1000 * (seconds + ENDING_MAX_S);
  const timer = setTimeout(() => reject(new Error('it did not end in its time')), lateMs);
  try {
    await Promise.race([MEASUREMENTS[name](card, section), hung]);
  } catch (error) {
    section.fail(error);
    process.exitCode = 1;
  }
  clearTimeout(timer);
  if (section.result.rows.some(({ failed }) => failed !== undefined)) process.exitCode = 1;
}

function optionsGiven(): CardOptions {
  try {
    return readOptions(process.argv.slice(2), availableParallelism());
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exit(2);
  }
}

const options = optionsGiven();
const card = await openCard(options);
try {
  const file = new CardFile(options.out, card.device);
  console.log(JSON.stringify({ ...file.results.machine, provider: options.provider }));
  for (const name of options.only) {
    if (told.signal.aborted) break;
    if (isMeasured(name)) await measure(name, card, file);
    console.log(describeSection(name, file.results));
  }
  console.log(file.path);
} finally {
  card.close();
}
// What hangs must not keep the program.
process.exit();
