/** A database whose statements a test hears of, to stop between any two of them. */
import type { KyselyPlugin } from 'kysely';
import type { Database } from '../../../src/store/database/connect.ts';

/** What a test throws in place of a statement: the process was killed there. */
export const INTERRUPTED = new Error('the process was killed');

/** The same database; `before` hears of every statement, and may throw in place of it. */
export function tapped(database: Database, before: () => void): Database {
  const plugin: KyselyPlugin = {
    transformQuery: ({ node }) => {
      before();
      return node;
    },
    transformResult: async ({ result }) => result,
  };
  return { ...database, kysely: database.kysely.withPlugin(plugin) };
}
