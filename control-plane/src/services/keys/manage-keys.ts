/**
 * The API keys of an account, for its people and for the operator. Another account's key is none,
 * and the service's own are in no list. Every change is in the account's log, with who made it.
 */
import type { Actor } from '../../domain/account/actor.ts';
import {
  KEYS_ALIVE_MAX,
  KEYS_EVER_MAX,
  ROTATION_OVERLAPS,
  type RotationOverlap,
} from '../../domain/account/key-policy.ts';
import type {
  ApiKey,
  ApiKeyStore,
  KeyChange,
  KeyPlace,
  MadeKey,
  NewKey,
} from '../../store/accounts/api-key-store.ts';

/** Keys of a page. */
export const KEYS_PAGE = 50;

export interface NewKeyAsked extends Pick<NewKey, 'policy' | 'expiresInMs'> {
  readonly name: string;
}

export class ManageKeys {
  readonly #apiKeys: Omit<ApiKeyStore, 'authenticate' | 'recall' | 'noteUses'>;

  constructor(apiKeys: Omit<ApiKeyStore, 'authenticate' | 'recall' | 'noteUses'>) {
    this.#apiKeys = apiKeys;
  }

  /** Newest first, KEYS_PAGE at most; the next page is behind the last of them. */
  list(accountId: string, after?: KeyPlace): Promise<ApiKey[]> {
    return this.#apiKeys.listNewest(accountId, KEYS_PAGE, after);
  }

  /** Undefined: no such key of the account. */
  find(accountId: string, apiKeyId: string): Promise<ApiKey | undefined> {
    return this.#apiKeys.find(apiKeyId, accountId);
  }

  /** Its text is in the answer and nowhere else. 'too-many': the account has as many as it may. */
  async create(
    accountId: string,
    { name, policy, expiresInMs }: NewKeyAsked,
    actor: Actor,
  ): Promise<MadeKey | 'too-many'> {
    const { alive, ever } = await this.#apiKeys.count(accountId, KEYS_EVER_MAX);
    if (alive >= KEYS_ALIVE_MAX || ever >= KEYS_EVER_MAX) return 'too-many';
    const asked = {
      ...(policy === undefined ? {} : { policy }),
      ...(expiresInMs === undefined ? {} : { expiresInMs }),
    };
    return this.#apiKeys.create(accountId, name, { ...asked, actor });
  }

  /** Undefined: no such key of the account, or it is revoked. */
  rotate(
    accountId: string,
    apiKeyId: string,
    overlap: RotationOverlap,
    actor: Actor,
  ): Promise<MadeKey | undefined> {
    const overlapMs = ROTATION_OVERLAPS[overlap];
    return this.#apiKeys.rotate(apiKeyId, { accountId, actor, overlapMs });
  }

  /** Undefined: no such key of the account, or it is revoked. */
  change(
    accountId: string,
    apiKeyId: string,
    change: KeyChange,
    actor: Actor,
  ): Promise<ApiKey | undefined> {
    return this.#apiKeys.change(apiKeyId, { accountId, actor }, change);
  }

  /** Undefined: no such key of the account. Ends both of its secrets; again changes nothing. */
  revoke(accountId: string, apiKeyId: string, actor: Actor): Promise<ApiKey | undefined> {
    return this.#apiKeys.revoke(apiKeyId, { accountId, actor });
  }
}
