/** Calls a test before each statement, so that it can stop between two of them. */
import type { KyselyPlugin } from 'kysely';
import type { Database } from '../database.ts';

/** A test throws it instead of a statement, like a killed process. */
export const INTERRUPTED = new Error('the process was killed');

/** `before` may throw instead of the statement. */
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
