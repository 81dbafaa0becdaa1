/** The operator's use cases on accounts: make one, list them, find one by what people type. */
import { ContractError } from '#contract/errors.ts';
import { type Account, type AccountStore, isName } from '../../store/accounts/account-store.ts';

export type OperatorAccount = ReturnType<typeof viewAccount>;

export interface AccountQuestion {
  readonly limit: number;
  /** The name of the last account of the page before; undefined: the first page. */
  readonly after: string | undefined;
}

export interface OperateAccountsDependencies {
  readonly accounts: Pick<AccountStore, 'create' | 'findByNameOrId' | 'list' | 'page' | 'namesOf'>;
}

export class OperateAccounts {
  readonly #accounts: OperateAccountsDependencies['accounts'];

  constructor({ accounts }: OperateAccountsDependencies) {
    this.#accounts = accounts;
  }

  /** Whether an account can be called so. */
  isName(name: string): boolean {
    return isName(name);
  }

  /** Without credits. @param name see isName. Undefined: the name is taken. */
  async create(name: string): Promise<OperatorAccount | undefined> {
    const account = await this.#accounts.create(name);
    return account && viewAccount(account);
  }

  /** All of them, by name. */
  async list(): Promise<OperatorAccount[]> {
    return (await this.#accounts.list()).map(viewAccount);
  }

  /** Some of them, by name. */
  async page({ limit, after }: AccountQuestion): Promise<OperatorAccount[]> {
    return (await this.#accounts.page({ limit, after })).map(viewAccount);
  }

  /** @param nameOrId what an operator types. @throws ContractError NOT_FOUND */
  async show(nameOrId: string): Promise<OperatorAccount> {
    const account = await this.#accounts.findByNameOrId(nameOrId);
    if (account === undefined) {
      throw new ContractError('NOT_FOUND', `there is no account "${nameOrId}"`);
    }
    return viewAccount(account);
  }

  /** Names by id; those of accounts that are not there are left out. */
  namesOf(accountIds: readonly string[]): Promise<ReadonlyMap<string, string>> {
    return this.#accounts.namesOf([...new Set(accountIds)]);
  }
}

function viewAccount(account: Account) {
  return {
    account_id: account.id,
    name: account.name,
    credits: { available: account.available, reserved: account.reserved },
    created_at: new Date(account.createdAtMs).toISOString(),
  };
}
