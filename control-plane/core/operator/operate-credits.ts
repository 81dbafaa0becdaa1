import { randomUUID } from 'node:crypto';
import { isReservedReference } from '@matting/accounts/ledger/ledger.ts';
import type { LedgerOutcome } from '@matting/accounts/ledger/ledger-store.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { StoresWithoutEnds } from '../stores.ts';
import { requireAccount } from './operate-accounts.ts';

interface CreditMovement {
  readonly kind: 'grant' | 'revoke';
  readonly account: string;
  readonly amount: number;
  /** Each reference counts once, however often it is sent; see isLedgerReference. */
  readonly reference: string;
}

type MovementOutcome = Exclude<LedgerOutcome, { readonly kind: 'unknown-account' }>;

export class OperateCredits {
  readonly #stores: Pick<StoresWithoutEnds, 'accounts' | 'ledger'>;

  constructor(stores: Pick<StoresWithoutEnds, 'accounts' | 'ledger'>) {
    this.#stores = stores;
  }

  /**
   * Moves credits and enters the movement in the account's log.
   * @throws ContractError NOT_FOUND, INVALID_REQUEST: a reserved reference
   */
  async move({ kind, account, amount, reference }: CreditMovement): Promise<MovementOutcome> {
    if (isReservedReference(reference)) {
      const fieldErrors = [
        { field: 'reference', detail: 'must not be that of an order or a lost result' },
      ];
      const detail = 'The reference is that of an order or a lost result. Send another one.';
      throw new ContractError('INVALID_REQUEST', detail, { fieldErrors });
    }
    const { id: accountId } = await requireAccount(this.#stores, account);
    const outcome = await this.#stores.ledger[kind](accountId, amount, reference, {
      id: randomUUID(),
      accountId,
      actor: { kind: 'operator' },
      action: kind === 'grant' ? 'credits.granted' : 'credits.revoked',
      subject: reference,
      after: { credits: amount },
    });
    if (outcome.kind === 'unknown-account') throw noAccount(account);
    return outcome;
  }

  async show(account: string) {
    const { id } = await requireAccount(this.#stores, account);
    const credits = await this.#stores.ledger.credits(id);
    if (credits === undefined) throw noAccount(account);
    return credits;
  }
}

function noAccount(nameOrId: string): ContractError {
  return new ContractError('NOT_FOUND', `There is no account "${nameOrId}".`);
}
