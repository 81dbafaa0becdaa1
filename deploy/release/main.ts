/**
 * `npm run release -- 0.2.0`: cuts a release of the branch that is checked out. Nothing is pushed.
 *
 *     --dry-run          say what would be committed and made, and change nothing
 *     --out=DIRECTORY    for the artifacts; release/VERSION unless given
 *     --without=a,b      leaves artifacts out: images,image-sbom where there is no podman
 *     --date=YYYY-MM-DD  of the changelog; today in UTC unless given
 */
import path from 'node:path';
import { parseArgs } from 'node:util';
import { cutRelease } from './cut-release.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
/** EX_USAGE of sysexits.h. */
const USAGE_EXIT_CODE = 64;
const DATE = /^\d{4}-\d\d-\d\d$/;

function readArguments() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      'dry-run': { type: 'boolean', default: false },
      out: { type: 'string' },
      without: { type: 'string', default: '' },
      date: { type: 'string', default: new Date().toISOString().slice(0, 10) },
    },
  });
  const [version, ...more] = positionals;
  if (version === undefined || more.length > 0) throw new TypeError('give one version: 0.2.0');
  if (!DATE.test(values.date)) throw new TypeError(`${values.date} is no date such as 2026-11-21`);
  return { version, values };
}

function fail(error: unknown, code: number): never {
  console.error(`release: ${(error as Error).message}`);
  process.exit(code);
}

let given: ReturnType<typeof readArguments>;
try {
  given = readArguments();
} catch (error) {
  fail(error, USAGE_EXIT_CODE);
}
const { version, values } = given;
try {
  await cutRelease({
    root: ROOT,
    version,
    date: values.date,
    out: path.resolve(values.out ?? path.join(ROOT, 'release', version)),
    without: values.without.split(',').filter(name => name !== ''),
    dryRun: values['dry-run'],
    say: line => console.log(line),
  });
} catch (error) {
  fail(error, 1);
}
