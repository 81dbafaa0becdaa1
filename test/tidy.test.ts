/** House rules that a machine can check. */
import { globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { settingsPage, variableNames } from '../docs/source/settings.ts';
import { MATTING_VARIABLES } from '../program/env-names.ts';
import { temporaryFolder } from './support/temporary-folder.ts';
import { BUDGET, type Figure, importsIn, LINES_MIN, measure } from './tidy/budget.ts';
import { circlesOf } from './tidy/circles.ts';
import { fieldsIn } from './tidy/fields.ts';
import { foreignColumnsOf, partsOfJobs } from './tidy/job-columns.ts';
import { missingPaths, pathsNamedBy, readPages } from './tidy/named-paths.ts';
import { EXPORTS_MAX, exportsOf, PACKAGES, partsOf, wrongImportsOf } from './tidy/packages.ts';
import { PROHIBITIONS } from './tidy/prohibitions.ts';
import { ROOT, readSources } from './tidy/source-files.ts';
import { STREETS, upwardImportsOf } from './tidy/streets.ts';
import { foreignTablesOf, tablesDeclaredBy } from './tidy/tables.ts';

const FUNCTION_LINES_MAX = 70;
const FILE_LINES_MAX = 800;
const FIELDS_MAX = 20;

const sources = readSources();
const isTest = (name: string) => /(^|\/)test\/|\.(test|storm|storage)\.ts$/.test(name);
const programs = sources.filter(({ name }) => !isTest(name) && !name.startsWith('bench/'));

/** AssemblyScript, which Node never imports. */
const KERNELS = /^inference-node\/kernels\//;

test('the sources were found', t => {
  t.true(programs.some(file => file.name === 'control-plane/main.ts'));
  t.true(programs.some(file => file.name === 'inference-node/main.ts'));
  t.true(programs.every(file => !file.name.includes('node_modules')));
});

/** Imports of generated code, which the other rules ignore. */
const IMPORTED_BY_GENERATED = ['@bufbuild/protobuf', '@grpc/grpc-js'];

test('a package imports what its package.json lists, by the names in exports, and never by a path out of it', t => {
  const wrong = sources.flatMap(file => wrongImportsOf(file, isTest(file.name)));
  t.deepEqual(wrong, []);
});

test('packages depend on each other in no circle', t => {
  const graph = new Map(
    PACKAGES.map(({ name, dependencies = {} }) => [name, Object.keys(dependencies)]),
  );
  t.deepEqual(circlesOf(graph), []);
});

test('every export and dependency of a package is imported', t => {
  const imported = new Set(sources.flatMap(({ imports }) => imports));
  const unused = PACKAGES.filter(({ name }) => name.startsWith('@matting/')).flatMap(
    ({ folder, exports = {} }) =>
      Object.keys(exports)
        .filter(name => !name.endsWith('/*'))
        .map(name => path.posix.join(folder, name))
        .filter(file => !imported.has(file)),
  );
  t.deepEqual(unused, []);
  for (const { folder, dependencies = {} } of PACKAGES) {
    const own = sources.filter(({ name }) => name.startsWith(`${folder}/`));
    const names = new Set(own.flatMap(file => file.specifiers.map(one => partsOf(one)[0])));
    const idle = Object.keys(dependencies).filter(
      name => !names.has(name) && !(folder === 'proto' && IMPORTED_BY_GENERATED.includes(name)),
    );
    t.deepEqual(idle, [], folder);
  }
});

for (const [name, max] of Object.entries(EXPORTS_MAX)) {
  test(`${name} exports at most ${max} files`, t => {
    const given = PACKAGES.filter(one => one.name === name).flatMap(exportsOf);
    t.true(given.length > 0);
    t.true(given.length <= max, `${given.length} files`);
  });
}

test('a row of a table in Markdown is a line with as many cells as the row below it', t => {
  const cellsOf = (row: string) => row.replaceAll(/`[^`]*`/g, '').split('|').length;
  const wrong = readPages().flatMap(({ page, text }) => {
    const lines = text.replaceAll(/^```.*?^```$/gms, '').split('\n');
    const isWrong = (line: string, next = '') =>
      line.startsWith('|') &&
      !(line.endsWith('|') && (next === '' || cellsOf(next) === cellsOf(line)));
    return lines.filter((line, at) => isWrong(line, lines[at + 1])).map(line => `${page}: ${line}`);
  });
  t.deepEqual(wrong, []);
});

test('the house is as large as its budget', t => {
  const measured = measure();
  for (const [figure, budget] of Object.entries(BUDGET) as [Figure, number][]) {
    const found = measured[figure];
    t.true(found <= budget, `${figure}: ${found}, above ${budget}. Say what leaves in exchange`);
    const isMost = budget < LINES_MIN || found > 0.99 * budget;
    t.true(isMost, `${figure}: ${found}. Lower the budget of ${budget}`);
  }
});

test('what a file imports of a package is found by name, and a whole file as such', t => {
  const text = `import { one, type Two as Other } from '@example/one/a.ts';
import type {
  Three,
  Four,
} from '@example/one/b/c.ts';
export { five } from '@example/one/d.ts';
import { fixture } from '@example/one/test/e.ts';
import { six } from '@example/two/f.ts';
import * as seven from '@example/one/g.ts';
const later = () => import('@example/one/h.ts');
type Eight = import('@example/one/i.ts').Eight;`;
  t.deepEqual(importsIn(text, '@example/one'), {
    names: ['one', 'Two', 'Three', 'Four', 'five'],
    whole: ['g.ts', 'h.ts', 'i.ts'],
  });
});

for (const { rule, from, to } of PROHIBITIONS) {
  test(rule, t => {
    const offenders = programs
      .filter(file => from.test(file.name))
      .flatMap(file =>
        file.imports.filter(name => to.test(name)).map(to => `${file.name} -> ${to}`),
      );
    t.deepEqual(offenders, []);
  });
}

/** Which models see a picture, and what of a matte is filled. */
const DECISIONS =
  /^inference-node\/serving\/picture\/(unsure-share|framed-run|confirm-subject|matte\/fill-areas)\.ts$/;

test('only picture/ decides about looks: benches and tools use its infer-plan.ts, or a node', t => {
  const deciders = sources.filter(({ imports }) => imports.some(name => DECISIONS.test(name)));
  const others = deciders.filter(({ name }) => !name.startsWith('inference-node/serving/picture/'));
  t.true(deciders.length > others.length);
  t.deepEqual(
    others.map(({ name }) => name),
    [],
  );
});

test('no circle of imports, type-only ones included', t => {
  const graph = new Map(sources.map(file => [file.name, file.imports]));
  t.deepEqual(circlesOf(graph), []);
});

for (const streets of STREETS) {
  test(`the folders of ${streets.folder} import only those before them`, t => {
    t.deepEqual(upwardImportsOf(streets, programs), []);
  });
}

function assertWithin(t: ExecutionContext, max: number, actual: [string, number][]) {
  const over = actual.filter(([, lines]) => lines > max);
  t.deepEqual(over, [], `over ${max} lines`);
}

test(`functions have at most ${FUNCTION_LINES_MAX} lines`, t => {
  const lengths = sources.flatMap(file =>
    file.functions.map(({ name, lines }): [string, number] => [`${file.name} ${name}`, lines]),
  );
  t.true(lengths.length > 5000);
  assertWithin(t, FUNCTION_LINES_MAX, lengths);
});

test(`files have at most ${FILE_LINES_MAX} lines`, t => {
  const lengths = sources.map(({ name, text }): [string, number] => [
    name,
    text.split('\n').length - 1,
  ]);
  assertWithin(t, FILE_LINES_MAX, lengths);
});

/** These take a whole job; functions take only the parts that they use. */
const WHOLE_JOBS = [
  'jobs/job-lists.ts EndedJob',
  'jobs/job-lists.ts JobWithCursor',
  'jobs/job.ts Job',
  'operator/operate-jobs.ts OperatedJob',
  'queue/queue.ts ClaimableJob',
  'queue/queue.ts OpenJob',
  'results/job-events.ts SubmittedJob',
  'queue/matting-submission.ts ItemJob',
  'queue/matting-submission.ts NewJob',
];

test(`a type of the core and the queue has at most ${FIELDS_MAX} fields, but for rows of tables`, t => {
  const types = [...fieldsIn('control-plane/core'), ...fieldsIn('control-plane/queue')];
  t.true(types.length > 300, String(types.length));
  const wide = types.filter(({ fields }) => fields > FIELDS_MAX).map(({ name }) => name);
  t.deepEqual(
    wide.filter(name => !WHOLE_JOBS.includes(name)),
    [],
  );
});

test('onnxruntime-node has one importer, which tells it to send nothing', t => {
  const importers = sources.filter(file => file.imports.includes('onnxruntime-node'));
  const way = 'inference-node/serving/engine/child/onnx-runtime.ts';
  t.deepEqual(
    importers.map(file => file.name),
    [way],
  );
});

test("the core names the portal's playground by two stored names alone", t => {
  const named = programs
    .filter(({ name }) => /^control-plane\/(?:core|queue)\/(?!migrations\/)/.test(name))
    .flatMap(({ name, text }) => text.split('\n').map(line => `${name}: ${line.trim()}`))
    .filter(line => /playground(?!_day\b)/i.test(line));
  t.deepEqual(named, ["control-plane/queue/job.ts: export const UNPAID = 'playground' as const;"]);
});

test('the queue imports nothing of pictures, and has no word for what its jobs do', t => {
  const files = programs.filter(({ name }) => name.startsWith('control-plane/queue/'));
  t.true(files.length > 5);
  const may =
    /^(?:control-plane\/(?:queue|accounts|database)\/|program\/|proto\/contract\/errors\.ts|node:|kysely)/;
  const imports = files.flatMap(({ name, imports }) =>
    imports.filter(one => !may.test(one)).map(one => `${name} -> ${one}`),
  );
  const word = /finishing|\bhints?|matte\b|mattes|background|thumbnail|correct|callback|webhook/i;
  const words = files.flatMap(({ name, text }) => {
    const lines = text.replaceAll('@matting/', '').split('\n');
    return lines.filter(line => word.test(line)).map(line => `${name}: ${line.trim()}`);
  });
  t.deepEqual([...imports, ...words], []);
});

test('a column of a job that the core adds is named by the room that owns it', t => {
  const parts = [...partsOfJobs()].map(([part, columns]) => [part, columns.length > 2]);
  t.deepEqual(parts.map(String), [
    ...['RequestColumns,true', 'ResultColumns,true', 'CallbackColumns,true', 'FamilyColumns,true'],
  ]);
  t.deepEqual(programs.flatMap(foreignColumnsOf), []);
  const text = "db.updateTable('jobs').set({ kept_until: null }).where('family', '=', id)";
  const name = 'control-plane/core/results/one.ts';
  t.deepEqual(foreignColumnsOf({ name, text }), [`${name} family`, `${name} kept_until`]);
});

test('one file writes ledger entries and balances', t => {
  const writer = 'control-plane/accounts/ledger/ledger-writer.ts';
  const tables = String.raw`(?:ledger_entries|accounts)\b`;
  const byKysely = String.raw`(?:insertInto|replaceInto|updateTable|deleteFrom|mergeInto)\([[\s]*'${tables}`;
  const bySql = String.raw`\b(?:insert into|replace into|update|delete from|merge into)\s+[\`"]?${tables}`;
  const writes = new RegExp(`${byKysely}|${bySql}`, 'gi');
  const found = programs.flatMap(({ name, text }) =>
    [...text.matchAll(writes)].map(([statement]) => `${name}: ${statement}`),
  );
  t.is(found.filter(place => place.startsWith(writer)).length, 9);
  // An account starts without credits, and taking its row changes none.
  const accounts = 'control-plane/accounts/account-store.ts';
  t.deepEqual(
    found.filter(place => !place.startsWith(writer)),
    [`${accounts}: insertInto('accounts`, `${accounts}: updateTable('accounts`],
  );
  const { text = '' } = sources.find(file => file.name === accounts) ?? {};
  t.true(text.includes('values({ id, name, available: 0, reserved: 0, '));
  const taken = "? { available: eb.ref('available') } : { turns: eb('turns', '+', 1) }, )";
  t.true(text.replaceAll(/\s+/g, ' ').includes(taken));
});

const tables = programs.flatMap(file => tablesDeclaredBy(file) ?? []);

test('a table is declared once, in the tables.ts of its package', t => {
  const places = programs.filter(({ text }) => /^declare module '@matting\/database\//m.test(text));
  t.deepEqual(
    places.map(({ name }) => name),
    tables.map(({ owner }) => `${owner}/tables.ts`),
  );
  const folders: readonly string[] = PACKAGES.map(({ folder }) => folder);
  t.true(tables.every(({ owner }) => folders.includes(owner)));
  const names = tables.flatMap(one => one.names);
  t.true(names.length > 30, String(names.length));
  t.deepEqual([...new Set(names)], names);
});

test('a package names its own tables alone', t => {
  t.deepEqual(
    programs.flatMap(file => foreignTablesOf(file, tables)),
    [],
  );
  const files = globSync('control-plane/**/*.sql', { cwd: ROOT, exclude: ['**/node_modules/**'] });
  t.deepEqual(files, [], 'a statement in a file has no owner');
});

test('only the config.ts of each program and of the command for callers reads the environment', t => {
  const offenders = programs
    .filter(file => !/^([^/]+|client\/src\/command)\/config\.ts$/.test(file.name))
    .filter(file => /process\.env\b(?!\.\w+ = )/.test(file.text))
    .map(file => file.name);
  t.deepEqual(offenders, []);
});

/** Entries of programs, and the child of a process pair, which ends with its parent. */
const MAY_END_THE_PROCESS = [
  /(^|\/)(main|cli)\.ts$/,
  /^bin\/matting\.ts$/,
  /^inference-node\/serving\/process\/serve-parent\.ts$/,
  /^inference-node\/serving\/engine\/child\/engine-child\.ts$/,
  /^inference-node\/serving\/picture\/worker\/picture-worker\.ts$/,
];

test('only entries end the process or handle signals', t => {
  const offenders = programs
    .filter(file => !MAY_END_THE_PROCESS.some(entry => entry.test(file.name)))
    .filter(file => /process\.exit\(|process\.(on|once)\(\s*'SIG/.test(file.text))
    .map(file => file.name);
  t.deepEqual(offenders, []);
});

test('no file is called after nothing', t => {
  const offenders = sources
    .filter(file => /(^|\/)(utils?|helpers?|managers?|common|misc)(\.ts$|\/)/.test(file.name))
    .map(file => file.name);
  t.deepEqual(offenders, []);
});

test('no line over 100 columns but for text that cannot be broken', t => {
  const offenders = sources.flatMap(file =>
    file.text
      .split('\n')
      .map((line, index) => ({ line, at: `${file.name}:${index + 1}` }))
      // Table rows, strings and regular expressions cannot be wrapped.
      .filter(({ line }) => !/^(\s*\*|\S+) \|/.test(line))
      .filter(({ line }) => line.length > 100 && !/['"`/]/.test(line.trim().slice(2)))
      .map(({ at }) => at),
  );
  t.deepEqual(offenders, []);
});

test('nothing is left for later and no test is shut off', t => {
  // Composed, so that this file does not match.
  const marks = new RegExp(
    `\\b(${['TO', 'DO'].join('')}|${['FIX', 'ME'].join('')}|X{3}|${['HA', 'CK'].join('')})\\b`,
  );
  const shut = new RegExp(`\\b(test|it|describe)\\.(${['on', 'ly'].join('')}|todo)\\(`);
  const offenders = sources
    .filter(file => marks.test(file.text) || shut.test(file.text))
    .map(file => file.name);
  t.deepEqual(offenders, []);
});

test('exported functions and classes of the programs are imported somewhere', t => {
  const imported = new Set(sources.flatMap(file => file.imports));
  const dead = programs
    .filter(file => !imported.has(file.name))
    .filter(file => !/(main|cli|matting|-child|-worker)\.ts$/.test(file.name))
    .filter(file => !file.name.endsWith('.d.ts'))
    .filter(file => !KERNELS.test(file.name))
    .map(file => file.name);
  t.deepEqual(dead, []);
});

test('kernels import kernels alone, and each that is exported is called', t => {
  const files = programs.filter(file => KERNELS.test(file.name));
  t.deepEqual(
    files.flatMap(file => file.imports.filter(name => !KERNELS.test(`${name}.ts`))),
    [],
  );
  const callers = programs.filter(file => file.name.startsWith('inference-node/serving/picture/'));
  const exported = files
    .filter(file => !file.name.endsWith('/pixel.ts'))
    .flatMap(file => [...file.text.matchAll(/^export function (\w+)/gm)].map(([, name]) => name));
  t.true(exported.length > 15);
  t.deepEqual(
    exported.filter(name => !callers.some(file => file.text.includes(`kernels.${name}(`))),
    [],
  );
});

test('the documents that make generate writes are current', t => {
  const generated = (file: string) => readFileSync(path.join(ROOT, file), 'utf8');
  t.is(generated('docs/settings.md'), settingsPage(), 'run make generate');
  t.deepEqual(MATTING_VARIABLES, variableNames());
});

test('every variable that a program names is one that a program declares', t => {
  const named = programs.flatMap(file =>
    [...file.text.matchAll(/'(MATTING_[A-Z0-9_]+)'/g)].map(([, name]) => name),
  );
  const known = new Set<string | undefined>(MATTING_VARIABLES);
  t.deepEqual(
    named.filter(name => !known.has(name)),
    [],
  );
});

test('files and folders that Markdown names exist', t => {
  const { named, missing } = missingPaths();
  t.true(named.length > 800, String(named.length));
  t.deepEqual(missing, []);
});

test('paths are found in backticks and in prose, without placeholders and links', t => {
  const text = '`jobs/job.ts`, `pool/`, docs/one.md, `make ONLY=docs/a`, `a/<b>.ts`, [c](a/c.md)';
  t.deepEqual(pathsNamedBy(text, ['docs']), ['jobs/job.ts', 'pool/', 'docs/a', 'docs/one.md']);
});

test('no page has the marks of a merge that was not finished', t => {
  const marked = readPages().filter(({ text }) => /^(?:<{7}|>{7}) /m.test(text));
  t.deepEqual(marked, []);
});

test('tables stand between empty lines, and a row has a cell for each of its head', t => {
  const tables = readPages().flatMap(({ page, text }) => {
    const prose = text.replaceAll(/^```[\s\S]*?^```$/gm, '');
    const found = prose.matchAll(/(?:^.*\n)?(?:^ *\|.*\n)+(?:^.*$)?/gm);
    return [...found].map(([lines]) => ({ page, lines }));
  });
  t.true(tables.length > 200, String(tables.length));
  const wrong = tables.filter(({ lines }) => {
    const [before, head = '', line = '', ...rows] = lines.replaceAll('\\|', '').split('\n');
    const after = rows.pop();
    const cells = head.split('|').length;
    const isWhole = [head, line, ...rows].every(
      row => /^\|.*\|$/.test(row) && row.split('|').length === cells,
    );
    return before !== '' || after !== '' || !isWhole || !/^\|[ :|-]+$/.test(line);
  });
  t.deepEqual(wrong, []);
});

/** A target without a rule does nothing. */
const MAKEFILE = readFileSync(path.join(ROOT, 'Makefile'), 'utf8');
const named = (pattern: RegExp) =>
  new Set([...MAKEFILE.matchAll(pattern)].flatMap(([, names = '']) => names.split(/,? +/)));

test('every target of the Makefile has a rule', t => {
  const phony = named(/^\.PHONY: (.*)$/gm);
  const documented = named(/^# make ([a-z-]+(?:, make [a-z-]+)*)/gm);
  documented.delete('make');
  const rules = named(/^([a-z-]+):(?! export)/gm);
  t.true(documented.size > 20);
  t.deepEqual(
    [...documented].filter(name => !phony.has(name)),
    [],
  );
  t.deepEqual(
    [...phony].filter(name => !rules.has(name)),
    [],
  );
});

test('circles are found, what only hangs on them is not', t => {
  const graph = new Map([
    ['entry', ['a', 'd', 'package']],
    ['a', ['b']],
    ['b', ['c', 'leaf']],
    ['c', ['a']],
    ['d', ['e', 'a']],
    ['e', ['d']],
    ['leaf', []],
  ]);
  t.deepEqual(circlesOf(graph), [
    ['a', 'b', 'c'],
    ['d', 'e'],
  ]);
  t.deepEqual(
    circlesOf(
      new Map([
        ['a', ['b']],
        ['b', []],
      ]),
    ),
    [],
  );
});

test('imports of a later folder are found, and folders without a place in the order', t => {
  const streets = { folder: 'a', order: ['low.ts middle', 'high'] };
  const files = {
    'a/low.ts': ['b/other.ts'],
    'a/middle/one.ts': ['a/low.ts', 'a/middle/deep/two.ts', 'b/other.ts', 'node:fs'],
    'a/middle/deep/two.ts': ['a/high/three.ts', 'a/main.ts'],
    'a/high/three.ts': ['a/middle/one.ts', 'a/new/four.ts'],
    'a/new/four.ts': ['a/low.ts'],
    'a/main.ts': ['a/high/three.ts', 'a/low.ts'],
    'b/other.ts': ['a/main.ts'],
  };
  const sources = Object.entries(files).map(([name, imports]) => ({ name, imports }));
  t.deepEqual(upwardImportsOf(streets, sources), [
    'a/middle/deep/two.ts -> a/high/three.ts',
    'a/middle/deep/two.ts -> a/main.ts',
    'a/high/three.ts -> a/new/four.ts',
    'a/new/four.ts: the order does not name its folder',
  ]);
});

async function sourceOf(t: ExecutionContext, name: string, text: string) {
  const root = await temporaryFolder(t);
  mkdirSync(path.join(root, path.dirname(name)), { recursive: true });
  writeFileSync(path.join(root, 'tsconfig.json'), '{ "include": ["program", "control-plane"] }');
  writeFileSync(path.join(root, name), text);
  return readSources(root);
}

const TABLES_OF_CORE = tablesDeclaredBy({
  name: 'control-plane/core/tables.ts',
  text: `interface JobsTable {
  id: string;
  account_id: string | null;
}
declare module '@matting/database/database.ts' {
  interface Schema {
    jobs: JobsTable;
    outbox: {
      sent_at?: number;
    };
  }
}
`,
})!;

test('the tables of a package are those that it adds to the schema', t => {
  t.is(TABLES_OF_CORE.owner, 'control-plane/core');
  t.deepEqual(TABLES_OF_CORE.names, ['jobs', 'outbox']);
  for (const column of ['id', 'account_id', 'sent_at']) {
    t.true(TABLES_OF_CORE.columns.includes(column), column);
  }
  t.is(tablesDeclaredBy({ name: 'a/b.ts', text: 'interface Schema { a: B }' }), undefined);
});

/** A template's expression in the lines below. */
const VALUE = ['$', '{id}'].join('');
const NAMING = [
  `db.selectFrom('jobs')`,
  `db.selectFrom('jobs as job')`,
  `db.selectFrom(['own', 'jobs'])`,
  `db.selectFrom((isOwn ? 'own' : 'outbox'))`,
  `db.insertInto('outbox')`,
  `db.replaceInto('outbox')`,
  `db.mergeInto('outbox as one')`,
  `db.updateTable('jobs')`,
  `db.deleteFrom('jobs')`,
  `db.deleteFrom('own').using('jobs')`,
  `db.selectFrom('own').innerJoin('jobs', 'own.id', 'own.job')`,
  `db.selectFrom('own').leftJoin('jobs as job', 'job.id', 'own.job')`,
  `db.selectFrom('own').rightJoin('outbox', join => join.onTrue())`,
  `db.selectFrom('own').fullJoin('outbox', join => join.onTrue())`,
  `db.selectFrom('own').crossJoin('outbox')`,
  `db.selectFrom('own').innerJoinLateral('outbox', join => join.onTrue())`,
  `where(eb => eb.exists(eb.selectFrom('jobs')))`,
  `where(({ ref }) => ref('jobs.account_id'))`,
  `db.selectFrom('own').select('jobs.id as job')`,
  `sql.table('jobs')`,
  `sql.id('outbox', 'sent_at')`,
  `sql.ref('outbox.sent_at')`,
  `throughIndex('jobs', 'jobs_state')`,
  `removeOldRows(database, { table: 'outbox', key: 'id' }, 5)`,
  `db.schema.alterTable('jobs')`,
  `createTables(db, dialect, [{ name: 'own' }, { name: 'jobs' }])`,
  `const table = 'jobs'`,
  `const names = ['own', "jobs"] as const`,
  'const quoted = `outbox`',
  `sql\`select id from jobs where id = ${VALUE}\``,
  `sql\`select * from ${VALUE} join outbox on true\``,
  'sql`(select count(*) from "jobs")`',
  'sql`insert into outbox (id) values (1)`',
  'sql`update jobs set id = 1`',
  `sql.raw('delete from jobs')`,
  `const statement = 'SELECT 1 FROM outbox WHERE 1 = 0'`,
  `const text = \`update outbox set sent_at = ${VALUE}\``,
  `type Row = Schema['jobs']`,
  `type Query = SelectQueryBuilder<Schema, 'own' | 'jobs', object>`,
];

const NAMELESS = [
  `db.selectFrom('own').select('own.jobs')`,
  `db.selectFrom(jobs.as('found'))`,
  `throughIndex('own', 'jobs_state')`,
  `const action = 'jobs.resent'`,
  `const detail = 'Take the credits from jobs of the account.'`,
  'sql`select jobs from own`',
  `type Store = CoreStores['jobs']`,
  `type Some = Pick<CoreStores, 'jobs' | 'outbox'>`,
  `const title = 'jobs and more'`,
];

test('tables of another package are found, however a file names them', async t => {
  const head = `import { sql } from 'kysely';\n`;
  const foundIn = async (name: string, lines: readonly string[], first = head) => {
    const [file] = await sourceOf(t, name, first + lines.join(';\n'));
    const found = foreignTablesOf(file!, [TABLES_OF_CORE]);
    const [skipped] = [first.split('\n').length - 1];
    return found.map(place => lines[Number(/:(\d+) /.exec(place)?.[1]) - 1 - skipped]);
  };
  const portal = 'control-plane/portal/one.ts';
  t.deepEqual([...new Set(await foundIn(portal, NAMING))], NAMING);
  t.deepEqual(await foundIn(portal, NAMELESS), []);
  t.deepEqual(await foundIn('control-plane/core/one.ts', NAMING), []);
  // In a file that reaches the database any table name counts; elsewhere only in a statement.
  const words = [`const table = 'jobs'`, `const menu = { name: 'outbox' }`];
  t.deepEqual(await foundIn(portal, words), words);
  t.deepEqual(await foundIn(portal, words, ''), []);
  const elsewhere = NAMING.filter(
    line => !/^const (?:table|names|quoted)|select\('jobs/.test(line),
  );
  t.deepEqual([...new Set(await foundIn(portal, elsewhere, ''))], elsewhere);
  const [main] = await sourceOf(t, 'control-plane/main.ts', NAMING.join(';\n'));
  t.true(foreignTablesOf(main!, [TABLES_OF_CORE]).length > 0);
});

test('fields are counted of every kind of type, those of its bases included', async t => {
  const root = await temporaryFolder(t);
  mkdirSync(path.join(root, 'program'));
  const options = '"compilerOptions": { "strict": true, "allowImportingTsExtensions": true }';
  writeFileSync(path.join(root, 'tsconfig.json'), `{ "include": ["program"], ${options} }`);
  writeFileSync(path.join(root, 'program/tables.ts'), 'export interface Rows { a: 1; b: 2 }');
  const text = `import type { Rows } from './tables.ts';
interface One { readonly a: string; b?: number; c(): void; d: () => void }
interface Two extends One, Omit<Rows, 'a'> { e: { f: string; g: string } }
type Three = Two & { h: string };
type Four = Pick<Three, 'a' | 'h'>;
type Five = Rows;
const six = () => ({ i: 1, j: 2 });
type Six = ReturnType<typeof six>;
type Seven = 'k' | 'l';`;
  writeFileSync(path.join(root, 'program/one.ts'), text);
  const fields = fieldsIn('program', root).filter(({ name }) => !name.startsWith('tables.ts'));
  t.deepEqual(
    fields.map(({ name, fields: count }) => `${name} ${count}`),
    [
      ...['one.ts One 3', 'one.ts Two 4', 'one.ts 2', 'one.ts Three 5', 'one.ts 1'],
      ...['one.ts Four 2', 'one.ts Five 0', 'one.ts Six 0', 'one.ts Seven 0'],
    ],
  );
});

test('imports of every kind are found, and functions with their names and lines', async t => {
  const text = `/** Not counted. */
import { a } from '../a.ts';
import type { B } from '@matting/proto/contract/b.ts';
export * from 'package';
import './effect.ts';
const later = () => import('./later.ts');
type C = import('./type.ts').C;
const notAnImport = "import { x } from './x.ts'"; // import './y.ts'
/** Not counted either. */
export async function three(b: B) {
  return b ?? '}';
}
class D {
  #four = (
    c: C,
  ) => c;
  get two() { return /[}]/;
  }
}
onDatabases(test, 'a group', (test, dialect) => {
  test('a test', t => {
    a();
  });
});
`;
  const found = await sourceOf(t, 'program/room/one.ts', text);
  const texts = found.flatMap(file => file.texts.map(({ text: one, takenBy }) => [one, takenBy]));
  t.deepEqual(texts, [
    ["import { x } from './x.ts'", ''],
    ['}', ''],
    ['a group', 'onDatabases'],
    ['a test', 'test'],
  ]);
  t.deepEqual(
    found.map(({ texts: _texts, ...file }) => file),
    [
      {
        name: 'program/room/one.ts',
        text,
        imports: [
          'program/a.ts',
          'proto/contract/b.ts',
          'package',
          'program/room/effect.ts',
          'program/room/later.ts',
          'program/room/type.ts',
        ],
        specifiers: [
          '../a.ts',
          '@matting/proto/contract/b.ts',
          'package',
          './effect.ts',
          './later.ts',
          './type.ts',
        ],
        functions: [
          { name: 'later', lines: 1 },
          { name: 'three', lines: 3 },
          { name: '#four', lines: 3 },
          { name: 'two', lines: 2 },
          { name: 'test: a test', lines: 3 },
        ],
      },
    ],
  );
});
