/**
 * What keeps a credit from being sold twice, a refund from taking too much or too little, and what
 * was paid for from being lost or read by others.
 */
import { inFile, type Mutation } from './mutation.ts';

const RULES = 'control-plane/src/domain/account/orders.ts';
const STORE = 'control-plane/src/store/sales/order-store.ts';

const inRules = inFile('control-plane/test/domain/account/orders.test.ts');
const STORE_TESTS = 'control-plane/test/store/sales/orders.test.ts';
const inOrders = inFile(STORE_TESTS, 'orders on sqlite');
/** SQLite runs one writing transaction at a time: two at once take a server. */
const inOrdersOnServer = inFile(STORE_TESTS, 'orders on mysql');
const PAYMENT_TESTS = 'control-plane/test/http/routes/payments.test.ts';
const inPages = inFile('control-plane/test/http/account/sales.test.ts', 'the pages of orders');
const inMatrix = inFile(
  'control-plane/test/http/account/attacks/access-matrix.test.ts',
  'who may do what',
);

const MONEY: readonly Mutation[] = [
  {
    name: 'a refund is rounded for the one who is refunded',
    file: RULES,
    find: 'return Number((BigInt(price - refunded) * BigInt(credits)) / BigInt(price));',
    replace: 'return Math.ceil(((price - refunded) * credits) / price);',
    caughtBy: inRules(
      'credits of a refund what stays is worth no more than what stays paid, and a credit more would be',
    ),
  },
  {
    name: 'an order is paid by another sum',
    file: RULES,
    find: 'amount !== order.price || ',
    replace: '',
    caughtBy: inOrders('grant nothing for another sum or currency, and keep each once'),
  },
  {
    name: 'an order is paid again with another payment',
    file: RULES,
    find: "return order.stored === 'paid' ? 'again' : 'accepted';",
    replace: "return 'accepted';",
    caughtBy: inOrders(
      'keep a second payment for the operator, and no more of them than their bound',
    ),
  },
  {
    name: 'the refunds that waited for a payment are forgotten',
    file: STORE,
    find: 'await applyWaitingRefunds(database, tx, order.id, paying.actor);',
    replace: '',
    caughtBy: inOrders('wait with a refund for its payment, or refuse it where it may not wait'),
  },
  {
    name: 'a refund takes what jobs hold',
    file: STORE,
    find: 'Math.min(credits, balances?.available ?? 0)',
    replace: 'credits',
    caughtBy: inOrders('take back what is available, never what jobs hold, and say the rest'),
  },
  {
    name: 'what an open job held at a refund is to spend again once the job fails',
    file: 'control-plane/src/store/jobs/job-completion.ts',
    find: 'await takeReleased(database, tx, { accountId, jobId, createdAtMs });',
    replace: '{}',
    caughtBy: inOrders(
      'take what a refund left with open jobs as they fail, and nothing of later jobs',
    ),
  },
  {
    name: 'a job that was submitted after a refund pays for it',
    file: STORE,
    find: ".where('unrevoked_at', '>=', createdAtMs)",
    replace: ".where('unrevoked_at', 'is not', null)",
    caughtBy: inOrders(
      'take what a refund left with open jobs as they fail, and nothing of later jobs',
    ),
  },
  {
    name: 'a refund that has all goes on taking',
    file: STORE,
    find: '...(unrevoked === 0 ? { unrevoked_at: null } : {}),',
    replace: '',
    caughtBy: inOrders('take no more of a release than one refund left, the earliest first'),
  },
  {
    name: 'refunds are more than the price together',
    file: STORE,
    find: 'if (amount > left || left === 0)',
    replace: 'if (left === 0)',
    caughtBy: inOrders('refund each refund once, and no more than their price'),
  },
  {
    name: 'a refund is done each time that it is told of',
    file: STORE,
    find: 'if (same !== undefined) return toldBefore(order, same, told.amount);',
    replace: '',
    caughtBy: inOrders('refund each refund once, and no more than their price'),
  },
];

const BOUNDS: readonly Mutation[] = [
  {
    name: 'two orders at once are counted as one',
    file: 'control-plane/src/store/people/authority.ts',
    find: 'await lockAccount(database, tx, accountId);\n  if',
    replace: 'if',
    caughtBy: inOrdersOnServer(
      'are bounded in number, pending and a day, however many come at once',
    ),
  },
  {
    name: 'pending orders have no bound',
    file: STORE,
    find: "if (pending >= ORDERS_PENDING_MAX) return 'too-many-pending';",
    replace: '',
    caughtBy: inOrders('are bounded in number, pending and a day, however many come at once'),
  },
  {
    name: 'an order of another account is cancelled',
    file: STORE,
    find: ".where('account_id', '=', accountId)\n      .where('state', '=', 'pending')",
    replace: ".where('state', '=', 'pending')",
    caughtBy: inOrders('are cancelled by their own account alone, while they are pending'),
  },
  {
    name: 'the grant of an order can be entered by hand',
    file: 'control-plane/src/store/ledger/ledger-store.ts',
    find: "if (isReservedReference(entry.reference))\n    throw new Error('a reference that orders or lost results alone enter');",
    replace: '',
    caughtBy: inOrders('have references in the ledger that nobody else enters'),
  },
];

const REPAY_TESTS = inFile(
  'control-plane/test/cli/repay-lost.test.ts',
  'lost results on sqlite, on the command line',
);
const LOST_STORE = 'control-plane/src/store/jobs/lost-results.ts';
const noLoss = inFile('control-plane/test/http/lost-results.test.ts', 'no lost result');

const LOSSES: readonly Mutation[] = [
  {
    name: 'a lost result is repaid each time that somebody says so',
    file: LOST_STORE,
    find: "if (!settled) return 'settled';",
    replace: '',
    caughtBy: REPAY_TESTS('gives each credit back once, and leaves what came back'),
  },
  {
    name: 'a lost result that cost nothing is repaid',
    file: LOST_STORE,
    find: "charge?.kind === 'charge' ? 'paid' : 'unpaid'",
    replace: "charge?.kind !== undefined ? 'paid' : 'unpaid'",
    caughtBy: REPAY_TESTS('gives nothing back for what cost nothing'),
  },
  {
    name: 'all results of a disk that is not mounted are lost',
    file: 'control-plane/src/services/reading/lost-results.ts',
    find: 'if (missing * 2 <= asked.length) return false;',
    replace: 'if (missing >= 0) return false;',
    caughtBy: noLoss('is one of a storage that is not there, or lost all it had at once'),
  },
  {
    name: 'a file is missing though its whole directory is',
    file: 'control-plane/src/storage/directory/directory-blob-store.ts',
    find: 'await this.#requireDirectoryOf(name);\n      throw',
    replace: 'throw',
    caughtBy: inFile(
      'control-plane/test/storage/directory/directory-blob-store.test.ts',
      'a directory that is gone, as that of a disk that is not mounted',
    )('says nothing of its files'),
  },
];

const LINKS: readonly Mutation[] = [
  {
    name: 'what a row has of a result link opens the result',
    file: 'control-plane/src/store/jobs/job-reading.ts',
    find: "const hashed = hash('sha256', token, 'hex');",
    replace: "const hashed = HASH.test(token) ? token : hash('sha256', token, 'hex');",
    caughtBy: inFile('control-plane/test/http/stored-tokens.test.ts')(
      'what the database has of a result link opens nothing, and is no part of the link',
    ),
  },
  {
    name: 'the token of a result link is kept as it is',
    file: 'control-plane/src/secrets/result-tokens.ts',
    find: "return { token: hash('sha256', token, 'hex'), sealedToken };",
    replace: 'return { token, sealedToken };',
    caughtBy: inFile('control-plane/test/http/stored-tokens.test.ts')(
      'what the database has of a result link opens nothing, and is no part of the link',
    ),
  },
  {
    name: 'who has two secrets keys seals the token of a result link with one',
    file: 'control-plane/src/secrets/callback-secret.ts',
    find: "return this.#boxes.map(box => sealedBy(box, text, boundTo)).join(' ');",
    replace: 'return this.sealText(text, boundTo);',
    caughtBy: inFile('control-plane/test/secrets/result-tokens.test.ts')(
      'the token of a result is shown by every replica at every step of a change of the key',
    ),
  },
];

const TELLERS: readonly Mutation[] = [
  {
    name: 'a notification is believed without its signature',
    file: 'control-plane/src/services/sales/signed-notifications.ts',
    find: 'if (wrong !== undefined) {',
    replace: 'if (false) {',
    caughtBy: inFile(
      PAYMENT_TESTS,
      'a notification of a payment',
    )('is not believed without a good signature over its very bytes, of now'),
  },
  {
    name: 'notifications have no rate',
    file: 'control-plane/src/services/sales/receive-payment.ts',
    find: "this.#rate.count('all');",
    replace: '',
    caughtBy: inFile(
      PAYMENT_TESTS,
      'notifications of payments',
    )('are told to come later beyond their rate; forged ones do not spend it'),
  },
  {
    name: 'a buyer says the price',
    file: 'control-plane/src/services/sales/orders.ts',
    find: 'one.credits === credits && one.price === price',
    replace: 'one.credits === credits',
    caughtBy: inPages('sell nothing else, and at no other price'),
  },
  {
    name: 'an order of another account is shown',
    file: STORE,
    find: 'accountId === undefined || order?.accountId === accountId ? order : undefined',
    replace: 'order',
    caughtBy: inMatrix('what another account has does not exist for a owner'),
  },
  {
    name: 'an exported cell is a formula',
    file: 'control-plane/src/services/sales/ledger-history.ts',
    find: 'FORMULA.test(cell)',
    replace: 'cell === null',
    caughtBy: inFile(
      'control-plane/test/http/account/sales.test.ts',
      'the page of credits',
    )('is exported as CSV that no spreadsheet takes for formulas'),
  },
];

export const SALES_MUTATIONS: readonly Mutation[] = [
  ...MONEY,
  ...BOUNDS,
  ...LOSSES,
  ...LINKS,
  ...TELLERS,
];
