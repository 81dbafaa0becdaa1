/** These guard what the store must not lose: the fence of jobs and notifications, money, keys. */
import { mutationsOf } from './mutation.ts';

export const STORE_MUTATIONS = mutationsOf`
file control-plane/database/leases.ts
tests control-plane/core/attempts/job-leases.test.ts: jobs on sqlite › leases
a claim is won while another holds the lease
  - lease_holder is null or
  + 1 = 1 or
  = let one claim win, raise the fence, and hide the job from others
an earlier claim of the same replica still holds the lease
  - and lease_holder =
  + or lease_holder =
  = claimed anew by the same replica are void for its own earlier claim
any replica holds the lease
  - and lease_holder =
  + or lease_holder =
  = are renewed by their holder, late too while nobody replaced it

file control-plane/core/jobs/leases.ts
tests control-plane/core/attempts/job-leases.test.ts: jobs on sqlite › leases
a claim is won with the fence of an old listing
  - .where('fence', '=', fenceBefore)
  = let one claim win, raise the fence, and hide the job from others
a renewal lengthens nothing
  - heldBy(kysely, claim).set({ lease_expires_at: nowPlusMs(nowMs, leaseMs) })
  + heldBy(kysely, claim).set({ lease_expires_at: nowPlusMs(nowMs, 0) })
  = are renewed by their holder, late too while nobody replaced it
an input replaces the one that is stored
  - .where('state', '=', 'fetching')
  = make accepted fetching, and stored input ready
a job without its input is admitted
  - .where('state', 'in', ['ready', 'running'])
  = make accepted fetching, and stored input ready
tests control-plane/core/attempts/job-leases.test.ts: the fence of a job on sqlite
a job that ended is claimed again
  - .where('queue_at', 'is not', null)
  = an ended job is claimed by nobody
a claim that was overtaken before its answer came counts
  - claimed === undefined || !holds(claimed, claim)
  + claimed === undefined
  = a claim that was overtaken before its answer came is no claim
an old claim is told that its input is stored
  - !isFinal(job) && holds(job, claim) && happened(job)
  + !isFinal(job) && happened(job)
  = an input that was stored under an earlier claim is not stored again by it

file control-plane/core/transactions/job-completion.ts
tests control-plane/core/attempts/job-leases.test.ts: jobs on sqlite › leases
an old fence is not seen before a job ends
  - undefined || job.fence !== claim.fence) return false
  + undefined) return false
  = claimed anew by the same replica are void for its own earlier claim
tests control-plane/core/attempts/job-leases.test.ts: the fence of a job on sqlite
a stranger is not seen before a job ends
  - job.lease?.holder !== claim.holder || !ending.from.includes(job.state))
  + !ending.from.includes(job.state))
  = a job is ended by the holder of its lease alone
tests control-plane/core/attempts/job-leases.test.ts: jobs on sqlite › endings
the state is not checked before a job ends
  - claim.holder || !ending.from.includes(job.state)) return false
  + claim.holder) return false
  = a job that no node admitted cannot succeed
a job succeeds that no node was given
  - SUCCEEDS_FROM: Job['state'][] = ['running'];
  + SUCCEEDS_FROM: Job['state'][] = ['accepted', 'fetching', 'ready', 'running'];
  = a job that no node admitted cannot succeed
an ending that is said again is refused
  - if (job.finishedAtMs !== null) return ending.happened(job);
  = success said twice is one success; another ending is refused
another result is told that it is the one
  - 'succeeded' && job.result?.token === result.token
  + 'succeeded'
  = success said twice is one success; another ending is refused
a job ends in several transactions
  - transact(database, tx => finishIn(database, tx, work), giveUp)
  + finishIn(database, database.kysely, work)
  = a body that cannot be rendered leaves job and money as they were
a retryable failure keeps the key
  - ...(failure.retryable ? { idempotency_key_hash: null } : {}),
  = a retryable failure frees the key, and the next request is a new job
every failure frees the key
  - failure.retryable ? { idempotency_key_hash: null } : {}
  + { idempotency_key_hash: null }
  = failure returns the credit from every open state, and is replayed
tests control-plane/core/attempts/job-leases.test.ts: the fence of a job on mysql
a job is ended under a fence that was replaced meanwhile
  - .where('fence', '=', claim.fence)
  = an ending that is overtaken by its own replica ends nothing
a job is ended under a lease that was given back meanwhile
  - .where('lease_holder', '=', claim.holder)
  = an ending whose lease is given back meanwhile ends nothing

file control-plane/core/transactions/settled-steps.ts
tests control-plane/core/jobs/settled.test.ts: a step of a job's end on sqlite
what a step has written stays though it failed
  - await tx.executeQuery(ROLLBACK);
  = is left out alone where it throws
a step keeps a job from its end
  - this.#ends < STEP_ENDS_MAX
  + this.#ends >= 0
  = is left out with all others once it has ended the transaction twice
what was left out is forgotten
  - for (const { name } of this.#leftOut) {
  + for (const { name } of this.#leftOut.slice(1)) {
  = is left out alone where it throws

file control-plane/core/retention/unsettled-jobs.ts
tests control-plane/core/jobs/settled.test.ts: a step of a job's end on sqlite
what was left out is done by each replica that sweeps
  - if (isMine && job !== undefined) await
  + if (job !== undefined) await
  = is done later, once, however many replicas sweep at once

file control-plane/core/ledger/ledger-writer.ts
tests control-plane/core/attempts/job-leases.test.ts: the fence of a job on mysql
a credit is settled that another ending settled meanwhile
  - .where('reserved', '>=', CREDITS_PER_JOB)
  = of two endings that meet the second is told that it is none
tests control-plane/core/attempts/job-leases.test.ts: jobs on sqlite › endings
a failure keeps the credit
  - kind === 'release' ? CREDITS_PER_JOB : 0
  + 0
  = failure returns the credit from every open state, and is replayed
tests control-plane/core/jobs/job-store.test.ts: jobs on sqlite › submission
a job is made without a credit
  - .where('available', '>=', CREDITS_PER_JOB)
  = refuses without a credit, and remembers nothing
jobs in flight have no bound
  - .where('reserved', '<', reservedMax)
  = refuses at the bound in flight, before it looks at credits
tests control-plane/core/ledger/ledger.test.ts: the ledger on sqlite
more is revoked than is there
  - kind === 'revoke', update
  + kind === 'grant', update
  = revokes all of it or nothing, never below zero available

file control-plane/core/transactions/job-submission.ts
tests control-plane/core/jobs/job-store.test.ts: keys that end on sqlite
a key is freed before its time is over
  - nowPlusMs(database.nowMs, -rememberedMs)
  + database.nowMs
  = are kept while their time runs, and freed once it is over
a job that waited for long is forgotten at its end, and the image paid for twice
  - eb('finished_at', '<=', nowPlusMs(
  + eb('created_at', '<=', nowPlusMs(
  = are kept for their time by a job that waited longer than that for a node
a key is freed under another name
  - .where('idempotency_key_hash', '=', idempotencyKeyHash)
  = are freed under their own name alone
tests control-plane/core/jobs/job-store.test.ts: jobs on sqlite › submission
a request that is said again is a second job or none
  - (await findTwin(database, db, job)) ?? refused
  + refused
  = finds the earlier job of a key and leaves the credits alone
a submission whose answer was lost is taken for another
  - found.id === job.id ? 'created' : 'exists'
  + 'exists'
  = repeated by itself after a lost answer is the same success

file control-plane/core/ledger/ledger-store.ts
tests control-plane/core/ledger/ledger.test.ts: the ledger on sqlite
a reference that was entered with another amount is taken for the same
  - earlier.amount !== entry.amount
  + false
  = grants once a reference, and says so when the amount differs

file control-plane/core/ledger/ledger-ranges.ts
tests control-plane/core/ledger/ledger-audit.test.ts: the ledger's audit on sqlite
an account whose entries are read in parts is not read to its end
  - yield { ...ALWAYS, fromMs };
  = reads every entry once, in however many parts

file control-plane/core/ledger/ledger-comparisons.ts
tests control-plane/core/ledger/ledger-audit.test.ts: the ledger's audit on sqlite
an account that entries alone name is not looked at
  - owner.id is not null
  + 1
  = names accounts that entries alone have, and counts what it does not list
tests control-plane/core/ledger/ledger-audit.test.ts: the ledger's audit on sqlite › of a broken ledger
a job that is gone may have been charged another amount than was reserved
  - when job.id is null then partner.amount = ledger_entries.amount
  + when job.id is null then partner.amount is not null
  = an entry that is gone, more or other is found by both
an entry of another account's job is sound
  - when job.account_id <> ledger_entries.account_id or job.playground_day is not null then 0
  = another account's job, and a job of the playground with an entry, are found by both
a job of the playground counts as an open one
  - .where('playground_day', 'is', null)
  = another account's job, and a job of the playground with an entry, are found by both
jobs are not compared with their entries
  - return asked.where(isNot(JOB_IS_SOUND)).execute();
  + return asked.where('job.id', 'is', null).execute();
  = a job of which the ledger has nothing is found by an audit of all

file control-plane/core/webhooks/outbox-store.ts
tests control-plane/core/webhooks/outbox.test.ts: the fence of a notification on sqlite
a notification is claimed with a fence that was used
  - .where('fence', '=', claim.fence - 1)
  = a claim of a fence that was used is lost, the lease being free
a notification is claimed before it is due
  - .where('next_attempt_at', '<=', nowMs)
  = a claim is lost before the next attempt is due

file control-plane/database/leases.ts
tests control-plane/core/webhooks/outbox.test.ts: the fence of a notification on sqlite
a notification is claimed while another sends it
  - lease_holder is null or
  + 1 = 1 or
  = a claim is lost while another holds the lease
an attempt is ended by an earlier claim of the same replica
  - and lease_holder =
  + or lease_holder =
  = an earlier claim of the same replica ends nothing
an attempt is ended by a stranger
  - and lease_holder =
  + or lease_holder =
  = a holder that was never given the lease ends nothing

file control-plane/database/sqlite-group-commit.ts
tests control-plane/database/sqlite-group-commit.test.ts: transactions that are ready together
a transaction is told that it is committed before it is
  - this.execute(RELEASE);
  -     } finally {
  -       this.#leave();
  -     }
  -     await group?.committed.promise;
  + this.execute(RELEASE);
  +     } finally {
  +       this.#leave();
  +     }
  = share one commit, and are told of it when others can see them
a failure is told before what it failed by is durable
  - this.#run(RELEASE);
  -       }
  -     } finally {
  -       this.#leave();
  -     }
  -     await group?.committed.promise;
  + this.#run(RELEASE);
  +       }
  +     } finally {
  +       this.#leave();
  +     }
  = fail alone, after what they failed by is durable
a transaction that fails keeps what it wrote
  - this.#run(ROLLBACK_TO);
  = fail alone, after what they failed by is durable
transactions are committed together without a bound
  - (group.due || group.members >= COMMITTED_TOGETHER_MAX
  + (group.due
  = are bounded in number, so that other processes get the lock
a commit that failed is told as one that did not
  - group.committed.reject(error);
  -       if (this.#connection.inTransaction) this.#connection.control('rollback');
  + group.committed.resolve();
  +       if (this.#connection.inTransaction) this.#connection.control('rollback');
  = all fail where the commit does, the rolled-back ones too, and the next group stands

file control-plane/core/ledger/ledger-writer.ts
tests control-plane/core/ledger/ledger.test.ts: the ledger on sqlite
an account has one job in flight too many
  - .where('reserved', '<', reservedMax)
  + .where('reserved', '<=', reservedMax)
  = reserves a credit of each job in flight, up to the bound and no further
`;
