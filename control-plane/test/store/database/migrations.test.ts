/**
 * The rule that lets old and new replicas run side by side on one database: a migration only adds.
 * What an old replica's statements read, write or search by stays, and what they insert is taken.
 */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { Migrator } from 'kysely/migration';
import { createTestDatabase, DIALECTS, skipReason } from '../../../../test/support/database.ts';
import type { Database } from '../../../src/store/database/connect.ts';
import {
  migrate,
  migrationsOf,
  requireCurrentSchema,
} from '../../../src/store/database/migrate.ts';
import { query } from '../../../src/store/database/transact.ts';
import { brokenFor, readSchemaShape } from './schema-shape.ts';
import { tapped } from './tapped-database.ts';

/** What Galera answers where another member's change of a table comes first. */
const CONFLICT = Object.assign(new Error('Deadlock found'), { errno: 1213 });

const DIRECTORY = path.resolve(import.meta.dirname, '../../../src/store/database/migrations');

for (const dialect of DIALECTS) {
  describe(`migrations on ${dialect}`, { skip: skipReason(dialect) }, () => {
    it('only add: nothing that an old replica uses goes or changes', async () => {
      const test = await createTestDatabase(dialect, { migrated: false });
      try {
        const database = await test.open();
        let before = await readSchemaShape(database);
        for (const name of Object.keys(migrationsOf(database))) {
          await migrateTo(database, name);
          const after = await readSchemaShape(database);
          assert.deepEqual(brokenFor(before, after), [], name);
          before = after;
        }
      } finally {
        await test.close();
      }
    });

    it('go on where a statement loses to another member', async () => {
      for (const at of [1, 20]) {
        const test = await createTestDatabase(dialect, { migrated: false });
        try {
          const database = await test.open();
          let seen = 0;
          const losing = tapped(database, () => {
            seen += 1;
            if (seen === at) throw CONFLICT;
          });
          await migrate(losing);
          assert.ok(seen > at, `${seen} statements`);
          await requireCurrentSchema(database);
        } finally {
          await test.close();
        }
      }
    });

    it('are all in the list that runs', async () => {
      const test = await createTestDatabase(dialect, { migrated: false });
      try {
        const names = Object.keys(migrationsOf(await test.open()));
        const files = readdirSync(DIRECTORY).filter(name => /^\d/.test(name));
        assert.deepEqual(names, files.map(name => path.basename(name, '.ts')).sort());
      } finally {
        await test.close();
      }
    });
  });
}

/** On Galera a change of tables that another test makes ends it, as it ends `migrate`'s own rounds. */
function migrateTo(database: Database, name: string): Promise<void> {
  return query(database, async db => {
    const provider = { getMigrations: async () => migrationsOf(database) };
    const { error } = await new Migrator({ db, provider }).migrateTo(name);
    if (error !== undefined) throw error;
  });
}

describe('what old statements stumble over', () => {
  const old = {
    tables: new Set(['jobs']),
    columns: new Map([
      ['jobs.id', { type: 'text', optional: false }],
      ['jobs.note', { type: 'text', optional: true }],
    ]),
    indexes: new Map([['jobs: jobs_note', 'plain note']]),
    checks: new Map<string, string>(),
  };
  const wrong: [what: string, next: typeof old, said: string][] = [
    ['a table', { ...old, tables: new Set(), columns: old.columns }, 'jobs is gone'],
    ['a column', { ...old, columns: new Map([...old.columns].slice(0, 1)) }, 'jobs.note is gone'],
    [
      'a column that has to be given',
      { ...old, columns: new Map([...old.columns, ['jobs.x', { type: 'text', optional: false }]]) },
      'jobs.x must be given',
    ],
    ['an index', { ...old, indexes: new Map() }, 'the index jobs: jobs_note is gone'],
    [
      'an index that refuses',
      { ...old, indexes: new Map([...old.indexes, ['jobs: once', 'unique note']]) },
      'jobs: once refuses what was taken',
    ],
    [
      'a check that refuses',
      { ...old, checks: new Map([['jobs: jobs_note', 'note > 0']]) },
      'jobs: jobs_note refuses what was taken',
    ],
  ];
  for (const [what, next, said] of wrong) {
    it(what, () => assert.deepEqual(brokenFor(old, next), [said]));
  }
  it('not what is only added', () => {
    const next = {
      ...old,
      tables: new Set([...old.tables, 'more']),
      columns: new Map([
        ...old.columns,
        ['jobs.more', { type: 'text', optional: true }],
        ['more.id', { type: 'text', optional: false }],
      ]),
      indexes: new Map([...old.indexes, ['more: more_once', 'unique id']]),
    };
    assert.deepEqual(brokenFor(old, next), []);
  });
});
