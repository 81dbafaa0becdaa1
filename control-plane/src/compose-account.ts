/** Makes the use cases behind the account area. Opens nothing. */
import type { AccountAreaServices } from './http/account/account-app.ts';
import type { DatabaseTurns } from './services/database-turns.ts';
import { Sessions } from './services/people/sessions.ts';
import type { Stores } from './store/stores.ts';

export interface AccountAreaParts {
  readonly stores: Stores;
}

export function composeAccountArea(
  { stores }: AccountAreaParts,
  databaseTurns: DatabaseTurns,
): AccountAreaServices {
  return { sessions: new Sessions(stores.sessions, databaseTurns) };
}
