/** Calls a test before each statement, so that it can stop between two. */
import type { KyselyPlugin } from 'kysely';
import type { Database } from '../database.ts';

/** Thrown instead of a statement, like a killed process. */
export const INTERRUPTED = new Error('the process was killed');

/** `before` may throw. */
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
