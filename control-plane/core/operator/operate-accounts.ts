import { type Account, isName } from '@matting/accounts/account-store.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { StoresWithoutEnds } from '../stores.ts';

type OperatorAccount = ReturnType<typeof viewAccount>;

type Accounts = Pick<StoresWithoutEnds, 'accounts'>;

export class OperateAccounts {
  readonly #stores: Accounts;

  constructor(stores: Accounts) {
    this.#stores = stores;
  }

  isName(name: string): boolean {
    return isName(name);
  }

  /**
   * Creates an account without credits.
   * @param name see isName
   * @returns undefined if the name is taken
   */
  async create(name: string): Promise<OperatorAccount | undefined> {
    const account = await this.#stores.accounts.create(name);
    return account && viewAccount(account);
  }

  async list(): Promise<OperatorAccount[]> {
    return (await this.#stores.accounts.list()).map(viewAccount);
  }

  async page(question: { readonly limit: number; readonly after: string | undefined }) {
    return (await this.#stores.accounts.page(question)).map(viewAccount);
  }

  async show(nameOrId: string): Promise<OperatorAccount> {
    return viewAccount(await requireAccount(this.#stores, nameOrId));
  }

  /** Leaves out unknown ids. */
  namesOf(accountIds: readonly string[]): Promise<ReadonlyMap<string, string>> {
    return this.#stores.accounts.namesOf([...new Set(accountIds)]);
  }
}

/** @throws ContractError NOT_FOUND */
export async function requireAccount({ accounts }: Accounts, nameOrId: string): Promise<Account> {
  const account = await accounts.findByNameOrId(nameOrId);
  if (account !== undefined) return account;
  throw new ContractError(
    'NOT_FOUND',
    `There is no account "${nameOrId}". Run 'matting accounts list' to list them.`,
  );
}

function viewAccount(account: Account) {
  return {
    account_id: account.id,
    name: account.name,
    credits: { available: account.available, reserved: account.reserved },
    created_at: new Date(account.createdAtMs).toISOString(),
  };
}
