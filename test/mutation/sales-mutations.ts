/** These keep a sale from being granted, refunded or read wrongly. */
import { mutationsOf } from './mutation.ts';

export const SALES_MUTATIONS = mutationsOf`
file control-plane/portal/orders/order-rules.ts
tests control-plane/portal/orders/money.test.ts: credits of a refund
a refund is rounded for the one who is refunded
  - return Number((BigInt(price - refunded) * BigInt(credits)) / BigInt(price));
  + return Math.ceil(((price - refunded) * credits) / price);
  = what stays is worth no more than what stays paid, and a credit more would be
tests control-plane/portal/orders/orders.test.ts: orders on sqlite
an order is paid by another sum
  - amount !== order.price || currency
  + currency
  = grant nothing for another sum or currency, and keep each once
an order is paid again with another payment
  - return order.stored === 'paid' ? 'again' : 'accepted';
  + return 'accepted';
  = keep a second payment for the operator, and no more of them than their bound

file control-plane/portal/orders/pay-order.ts
tests control-plane/portal/orders/orders.test.ts: orders on sqlite
the refunds that waited for a payment are forgotten
  - await applyWaitingRefunds(database, tx, order.id, paying.actor);
  = wait with a refund for its payment, or refuse it where it may not wait

file control-plane/portal/orders/refund-order.ts
tests control-plane/portal/orders/orders.test.ts: orders on sqlite
a refund takes what jobs hold
  - Math.min(credits, balances?.available ?? 0)
  + credits
  = take back what is available, never what jobs hold, and say the rest
a job that was submitted after a refund pays for it
  - .where('unrevoked_at', '>=', createdAtMs)
  + .where('unrevoked_at', 'is not', null)
  = take what a refund left with open jobs as they fail, and nothing of later jobs
a refund that has all goes on taking
  - ...(unrevoked === 0 ? { unrevoked_at: null } : {}),
  = take no more of a release than one refund left, the earliest first
refunds are more than the price together
  - if (amount > left || left === 0)
  + if (left === 0)
  = refund each refund once, and no more than their price
a refund is done each time that it is told of
  - if (same !== undefined) return toldBefore(order, same, told.amount);
  = refund each refund once, and no more than their price
tests control-plane/portal/settled-steps.test.ts: what was left out of a job's end on sqlite
a refund waits for ever for what was spent
  - if (kind === 'insufficient-credits') return;
  = is lacked by the refund where it was spent meanwhile

file control-plane/portal/orders/order-store.ts
tests control-plane/portal/orders/orders.test.ts: orders on sqlite
pending orders have no bound
  - if (pending >= ORDERS_PENDING_MAX) return 'too-many-pending';
  = are bounded in number, pending and a day, however many come at once
an order of another account is cancelled
  - .where('account_id', '=', accountId)
  -       .where('state', '=', 'pending')
  + .where('state', '=', 'pending')
  = are cancelled by their own account alone, while they are pending
tests control-plane/portal/test/attacks/every-route.test.ts: who may
an order of another account is shown
  - accountId === undefined || order?.accountId === accountId ? order : undefined
  + order
  = what another account has does not exist for a owner

file control-plane/portal/settled-steps.ts
tests control-plane/portal/orders/orders.test.ts: orders on sqlite
what an open job held at a refund is to spend again once the job fails
  - await takeReleased(database, tx, job);
  = take what a refund left with open jobs as they fail, and nothing of later jobs

file control-plane/core/accounts/audit.ts
tests control-plane/portal/orders/orders.test.ts: orders on mysql
two orders at once are counted as one
  - await lockAccount(database, tx, accountId);
  -   const error
  + const error
  = are bounded in number, pending and a day, however many come at once

file control-plane/core/ledger/ledger-store.ts
tests control-plane/portal/orders/orders.test.ts: orders on sqlite
the grant of an order can be entered by hand
  - if (isReservedReference(entry.reference))
  -     throw new Error('a reference that orders or lost results alone enter');
  = have references in the ledger that nobody else enters

file control-plane/core/results/lost-result-store.ts
tests control-plane/test/repay-lost.test.ts: lost results on sqlite
a lost result is repaid each time that somebody says so
  - if (!settled) return 'settled';
  = gives each credit back once, and leaves what came back
a lost result that cost nothing is repaid
  - charge?.kind === 'charge' ? 'paid' : 'unpaid'
  + charge?.kind !== undefined ? 'paid' : 'unpaid'
  = gives nothing back for what cost nothing

file control-plane/core/results/repay-lost.ts
tests control-plane/test/repay-lost.test.ts: lost results on sqlite
most results are taken for lost at the first word
  - if (options.all && !options.evenMost) await requireFewMissing(dependencies);
  = takes most results for lost only where it is told so once more

file control-plane/core/results/lost-results.ts
tests control-plane/core/results/results.test.ts: no lost result
all results of a disk that is not mounted are lost
  - if (missing * 2 <= asked.length) return false;
  + if (missing >= 0) return false;
  = is one of a storage that is not there, or lost all it had at once

file control-plane/core/storage/directory-store.ts
tests control-plane/core/storage/directories.test.ts: a directory that is gone, as that of a disk that is not mounted
a file is missing though its whole directory is
  - await this.#requireDirectoryOf(name);
  -       throw
  + throw
  = says nothing of its files

file control-plane/core/jobs/job-reading.ts
tests control-plane/core/results/results.test.ts: the database
what a row has of a result link opens the result
  - const hashed = hash('sha256', token, 'hex');
  + const hashed = HASH.test(token) ? token : hash('sha256', token, 'hex');
  = opens nothing, and is no part of the link

file control-plane/core/results/result-tokens.ts
tests control-plane/core/results/results.test.ts: the database
the token of a result link is kept as it is
  - return { token: hash('sha256', token, 'hex'), sealedToken };
  + return { token, sealedToken };
  = opens nothing, and is no part of the link

file control-plane/core/secrets/secret-box.ts
tests control-plane/core/secrets/sealed.test.ts: the token of a result
who has two secrets keys seals the token of a result link with one
  - return this.#boxes.map(box => sealedBy(box, text, boundTo)).join(' ');
  + return this.sealText(text, boundTo);
  = is shown by every replica at every step of a change of the key

file control-plane/portal/orders/signed-notifications.ts
tests control-plane/portal/orders/sales.test.ts: a notification of a payment
a notification is believed without its signature
  - if (wrong !== undefined) {
  + if (false) {
  = is not believed without a good signature over its very bytes, of now

file control-plane/portal/orders/receive-payment.ts
tests control-plane/portal/orders/sales.test.ts: notifications of payments
notifications have no rate
  - this.#rate.count('all');
  = are told to come later beyond their rate; forged ones do not spend it

file control-plane/portal/orders/order-pages.ts
tests control-plane/portal/orders/sales.test.ts: the pages of orders
a buyer says the price
  - one.credits === credits && one.price === price
  + one.credits === credits
  = sell nothing else, and at no other price

file control-plane/portal/orders/package-pages.ts
tests control-plane/portal/orders/sales.test.ts: the pages of orders
a package is ordered at a price that is no longer its own
  - if (sold === undefined) return renderPackages(reply, services, 'notOnSale');
  + if (sold === undefined) throw new Error('nothing is sold');
  = refuse what was reviewed before the price list changed

file control-plane/portal/orders/order-store.ts
tests control-plane/portal/orders/orders.test.ts: orders on sqlite
an order is refused where another drew its reference
  - if (!isTaken || attempt === REFERENCES_TRIED_MAX) throw error;
  + throw error;
  = have a reference of their own, also where another order drew the same

file control-plane/portal/migrations/0004-baseline.ts
tests control-plane/portal/orders/orders.test.ts: orders on sqlite
two orders have one reference
  - const isUnique = true;
  + const isUnique = false;
  = have a reference of their own, also where another order drew the same

file control-plane/portal/page/csv.ts
tests control-plane/portal/orders/sales.test.ts: the page of credits
an exported cell is a formula
  - FORMULA.test(cell)
  + cell === null
  = is exported as CSV that no spreadsheet takes for formulas

file control-plane/portal/orders/ledger-lines.ts
tests control-plane/portal/orders/ledger-lines.test.ts: lines of a ledger on sqlite
the balances of a page count what moved after it
  - let balance = (first?.total ?? 0) - requireInteger(first?.moved ?? null);
  + let balance = first?.total ?? 0;
  = are each the one before it and what it moved, on pages of any size
a balance is told that counts less than there is
  - requireInteger(first?.entries ?? null) <= newerMax;
  + true;
  = have no balance behind more entries than are read
`;
