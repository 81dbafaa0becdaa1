/** A database that calls a test before each statement, to stop between any two of them. */
import type { KyselyPlugin } from 'kysely';
import type { Database } from '../database.ts';

/** Thrown by a test in place of a statement: the process was killed there. */
export const INTERRUPTED = new Error('the process was killed');

/** The same database; `before` is called before each statement, and may throw in its place. */
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
