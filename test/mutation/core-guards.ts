import { guardsOf } from './guard.ts';

export const CORE_GUARDS = guardsOf`
control-plane/accounts/audit-log.ts by control-plane/portal/orders/orders.test.ts
requireAuthority | await lockAccount | orders on mysql › are bounded in number, pending and a day, however many come at once
control-plane/accounts/audit-log.ts by control-plane/portal/people/authority.test.ts
requireAuthority | await lockAccount | the authority of people on mysql › keeps the account and the session as they are until the change commits
control-plane/core/attempts/claimed-job.ts by control-plane/core/attempts/attempts.test.ts
#succeed | === null | a picture without a visible subject › asked to fail, not said: a result
control-plane/core/attempts/claimed-job.ts by control-plane/core/attempts/thumbnails.test.ts: a thumbnail
#removeResult | await this.#removeBlob(thumbnailBlob | goes with the result of an attempt that was overtaken
#storeThumbnail | if (await | that the storage does not take is none, and the job succeeds and is charged
control-plane/queue/held-lease.ts by control-plane/queue/held-lease.test.ts
constructor | => void | a held lease › is renewed in full long before it ends, as long as the work runs
control-plane/core/attempts/result-blob.ts by control-plane/core/attempts/attempts.test.ts
commit | await this.#requireStored | a result › is not charged if the storage took it and has nothing of it
control-plane/core/dispatch/advertised-nodes.ts by control-plane/core/dispatch/pick-node.test.ts: the advertised nodes
nodes | are unknown within the first grace period
#refresh | > graceMs | are those that were there within the grace period, and no others
control-plane/queue/dispatch-core.ts by control-plane/core/dispatch/dispatch-core.test.ts
#incapableFailure | && 'unable' | a job that no live node can do while others may come › causes no round by itself: the poll notices a new node
leaves | >= eachMax | a round › knows that behind a full listing more may wait, though all of it began
control-plane/core/dispatch/job-needs.ts by control-plane/core/dispatch/pick-node.test.ts
shortfallOf | if (missingCapability( | a request that no node can serve › names a field that nodes of another version do not follow
control-plane/core/dispatch/job-needs.ts by test/contract/finishing-frames.test.ts
admittedMegapixels | finishing: | counts on the node what it was placed for, and is refused there for what was known
admittedMegapixels | background: | counts on the node what it was placed for, and is refused there for what was known
control-plane/core/dispatch/job-run.ts by control-plane/core/attempts/refused-attempts.test.ts
#tryNodes | if (missingCapability( | a header over 4096 bytes › goes to a node that takes it, whichever was chosen
#after | === 'rejected' | a request that nodes reject › is tried once more on the only node
control-plane/core/dispatch/node-reservation.ts by control-plane/core/dispatch/node-reservation.test.ts
nodesFor | filter | an image that has waited for memory has the node for itself, until it begins
#end | this.#nextAtMs | an image that has waited for memory has the node for itself, until it begins
control-plane/core/dispatch/node-refusals.ts by control-plane/core/dispatch/pick-node.test.ts
unreadableDetail | 'heic' | a request that no node can serve › is refused if no node reads the format of the background
control-plane/queue/dispatch-core.ts by control-plane/core/dispatch/dispatch-core.test.ts
beginRound | && capacity.slots('unbound') | nodes of other models › have no room for jobs that name none, and make no round for them
control-plane/core/dispatch/job-needs.ts by control-plane/core/models/dispatched.test.ts
shortfallOf | === undefined ? | each job goes to the node of its model, one without a name to that of the first offered
control-plane/core/fetching/fetch-image.ts by control-plane/core/fetching/sources.test.ts
fetchImage | ? INPUT_IMAGE | a background has bounds of its own, and says in every error that it is the background
control-plane/core/http/header-checks.ts by control-plane/core/test/accounts/account.test.ts
requireRate | === 'submissions' | a rate of its own › refuses a key beyond it, and takes nothing of the account’s then
control-plane/core/http/operator-app.ts by control-plane/core/http/operator-app.test.ts
requireMetricsAccess | || ! | metrics › need no key if their reader chose the address
control-plane/core/http/operator-app.ts by control-plane/portal/session/half-sent-forms.test.ts
buildOperatorApp | awaitBodies | half-sent forms on the operator's port › from one network keep no scraper and no key out
control-plane/core/http/public-app.ts by test/contract/access.test.ts
registerCallerRoutes | onRequest: checks.models | GET /v1/models takes a key
registerCallerRoutes | onRequest: checks.account | GET /v1/account/keys takes account
control-plane/core/http/read-matting-body.ts by test/contract/bodies.test.ts
NOT_IN_A_QUERY | 'callback_secret' | what a query must not have is refused › a picture
readQueryFields | if (texts | a text twice is refused › a picture
#begin | if (this | a text twice is refused › a form
#begin | if (isFile | a file where a text belongs is refused › a form
control-plane/core/http/read-matting-body.ts by control-plane/core/submission/body-forms.test.ts
#image | if ( | a form: one source, which has bytes
control-plane/core/queue/matting-queue.ts by control-plane/core/jobs/job-store.test.ts
inputStored | queuedFramePixels | jobs with finishing on sqlite › count as the rule of frames has it, before their image is there and after
control-plane/queue/leases.ts by control-plane/core/queue/queue.test.ts: the queue on sqlite
CLAIM | where('fence' | a claim › is won once, raises the fence, and hides the job
RENEW | nowPlusMs | a lease › is renewed late, too, while nobody replaced its holder
prepare | where | an input › that is stored makes the job ready, twice for once
ADMITTED | where | an input › that is stored makes the job ready, twice for once
CLAIM | where('queue_at' | a claim › of an ended job is none, and no listing has it
prepare | && holds | a fence › serves the last claim and its holder alone: a job that has its input
control-plane/queue/leases.ts by control-plane/core/queue/end-job.test.ts
jobLeases.claim | || ! | the fence of a job on sqlite › a claim that was overtaken before its answer came is no claim
control-plane/core/jobs/job-reading.ts by control-plane/core/results/results.test.ts
findByResultToken | hash( | the database › opens nothing, and is no part of the link
control-plane/core/retention/job-retention.ts by control-plane/core/jobs/job-store.test.ts
referencedBlobs | backgroundsIn | jobs with finishing on sqlite › name their background until they end, either way
blobsOfResult | === null ? | jobs on sqlite › retention › a thumbnail is named and goes with its result, whichever way that goes
referencedBlobs | filter | jobs on sqlite › retention › a thumbnail is named and goes with its result, whichever way that goes
control-plane/accounts/keys/change-api-keys.ts by control-plane/core/test/accounts/manage-keys.test.ts: a rotation
rotateApiKey | ref( | within an overlap ends the oldest secret, and keeps the two others
rotateApiKey | at once ends the old secret here and now, and says when
  - nowPlusMs(database.nowMs, by.overlapMs)
  + nowPlusMs(database.nowMs, by.overlapMs + 60_000)
control-plane/batches/cancel-batches.ts by control-plane/batches/transactions.test.ts: a batch on sqlite
cancelOpenBatches | if (cancelled | is cancelled by somebody of its account alone, who is in the log once
cancelBatchBy | !== (accountId | is cancelled by somebody of its account alone, who is in the log once
control-plane/accounts/keys/change-api-keys.ts by control-plane/batches/transactions.test.ts: a batch on sqlite
requireUnrevoked | if (key | and the revocation of its key, at once, leave no batch that goes on
revokeApiKey | await step( | is cancelled with its key, and jobs that a node began end as usual
control-plane/accounts/keys/key-caps.ts by control-plane/core/test/accounts/keys.test.ts: policies of keys on sqlite
countForCap | cap_used: | a cap is kept to the credit by submissions that race at two replicas
giveBackToCap | where('cap_window_start' | a job of an earlier period gives nothing back to the cap of this one
control-plane/accounts/keys/key-policy.ts by control-plane/core/test/accounts/account.test.ts
refusalOfKey | !== undefined && !isIpInNetworks | networks › let in who is in one of them, by the address of the connection
control-plane/accounts/keys/key-policy.ts by control-plane/core/caller-rates-and-rights.test.ts
refusalOfKey | !== undefined && !scopes | the rights of a key › are its scopes, from its networks
control-plane/accounts/keys/key-policy.ts by control-plane/core/test/accounts/keys.test.ts
takeOfCap | ? undefined | policies of keys on sqlite › a cap is kept to the credit by submissions that race at two replicas
control-plane/accounts/keys/key-policy.ts by control-plane/portal/people/thresholds-and-usage.test.ts
countOfNewCap | === cap | the count of a cap › is kept where only the credits of its cap change
control-plane/accounts/keys/api-key-cache.ts by control-plane/core/test/accounts/keys.test.ts: policies of keys on sqlite
cachedKeyFromRow | > 0 ? owner | a key is refused from its expiry on, with the time
cachedKeyFromRow | > 0 ? { | previousLeftMs > 0 ? previousLeftMs | two secrets go on while a key is rotated, each to its end, and no memory outlives one
ApiKeyCache.authenticate | return ownerOfSecret | two secrets go on while a key is rotated, each to its end, and no memory outlives one
selectInUse | where('purpose' | a key of the service itself is in no list, and opens nothing
control-plane/accounts/keys/read-api-keys.ts by control-plane/portal/alerts/key-expiry-notices.test.ts: key expiry notices under two replicas on sqlite
listExpiringKeys | || expiresAtMs | are not sent for keys that expire later or never, have expired or are revoked
control-plane/accounts/keys/read-api-keys.ts by control-plane/core/test/accounts/manage-keys.test.ts
findApiKey | === undefined || | another account › sees none of it, and changes none of it
control-plane/core/audit/ledger-comparisons.ts by control-plane/core/test/accounts/ledger-audit.test.ts
entryIsSound | the ledger's audit on sqlite › names accounts that only entries have, and counts faults beyond its list
entryIsSound | is null then 1 | the ledger's audit on sqlite › both audits find a missing, an extra and a changed entry
entryIsSound | <> ledger_entries | the ledger's audit on sqlite › both audits find another account's job, and a playground job with an entry
readWrongJobs | isNot | the ledger's audit on sqlite › the audit of all accounts finds a final job without entries
control-plane/accounts/ledger/ledger-lines.ts by control-plane/core/test/accounts/ledger-lines.test.ts: lines of a ledger on sqlite
readLines | ?? 0 | are each the one before it and what it moved, on pages of any size
readLines | ?? null) < | have no balance behind more entries than are read
control-plane/accounts/ledger/ledger-ranges.ts by control-plane/core/test/accounts/ledger-audit.test.ts
timeRangesOf | yield { . | the ledger's audit on sqlite › reads every entry once, in however many parts
control-plane/accounts/ledger/ledger-store.ts by control-plane/core/test/accounts/ledger.test.ts
earlierOutcome | if (earlier. | the ledger on sqlite › grants once a reference, and says so when the amount differs
control-plane/accounts/ledger/ledger-store.ts by control-plane/portal/orders/orders.test.ts
enter | if (isReservedReference | orders on sqlite › have references in the ledger that nobody else enters
control-plane/accounts/ledger/ledger-writer.ts by control-plane/core/queue/end-job.test.ts
SETTLE | where('reserved' | the fence of a job on mysql › refuses the second of two endings at the same time
settleCredit | jobs on sqlite › endings › failure returns the credit from every open state, and is replayed
control-plane/accounts/ledger/ledger-writer.ts by control-plane/core/jobs/job-store.test.ts: jobs on sqlite › submission
RESERVE | where('available' | refuses without a credit, and remembers nothing
control-plane/accounts/ledger/ledger-writer.ts by control-plane/core/test/accounts/ledger.test.ts: the ledger on sqlite
enterOperatorEntry | 'revoke' | revokes all of it or nothing, never below zero available
RESERVE | where(SLOTS_USED | reserves a credit of each job in flight, up to the bound and no further
RESERVE | '<', | reserves a credit of each job in flight, up to the bound and no further
control-plane/nodes/attempt-outcome.ts by control-plane/core/attempts/refused-attempts.test.ts
kindBefore | === 'INVALID | a request that nodes reject › is tried once more on the only node
kindBefore | && !isBare | a node that fails before it admits › fails the job after two attempts, which may be sent again
control-plane/nodes/attempt-outcome.ts by control-plane/test/compose/replicas.test.ts
outcomeOf | || about | two replicas on sqlite › remove.bg › takes a region that the node finds empty for the request’s fault, and asks no other
control-plane/nodes/fleet.ts by control-plane/core/models/dispatched.test.ts
#countSums | ofStandingSum | a node with another sum than most gets no job of that name
control-plane/nodes/matte-client-call.ts by control-plane/core/attempts/attempts.test.ts
requireFinished | if (isSame | an incomplete answer › that lacks a step is dropped
control-plane/nodes/matte-client-call.ts by control-plane/core/attempts/thumbnails.test.ts
isThumbnail | && length | a thumbnail › is left out if the node sends too many bytes of it, and the job succeeds
control-plane/nodes/matte-client-call.ts by control-plane/core/models/dispatched.test.ts
headerMessage | selectableSha256 | the header names the request’s plan or model with its checksum, or nothing
control-plane/nodes/node-view.ts by control-plane/core/dispatch/pick-node.test.ts
end | === 'for-all' | a node that refused › for want of memory gets smaller images at once, and no image as large before its next report
control-plane/core/open-resources.ts by control-plane/core/webhooks/callbacks.test.ts
renderOutboxBody | sealText | a job shows its callback in every state, the notification does not
control-plane/accounts/rates/rate-limits.ts by control-plane/core/caller-rates-and-rights.test.ts
#take | share.left - | rates › one replica keeps the limit to the request, one at a time or all at once
control-plane/accounts/rates/rate-limits.ts by control-plane/core/test/accounts/keys.test.ts
leaseFrom | where('leased' | rate quotas on sqlite › are never leased twice, however many ask at once
control-plane/accounts/rates/rate-windows.ts by control-plane/core/caller-rates-and-rights.test.ts
leaseQuota | === windowStartMs ? ask | rates › one replica keeps the limit to the request, one at a time or all at once
control-plane/accounts/rates/rate-windows.ts by control-plane/core/test/accounts/keys.test.ts: rate quotas on sqlite
leaseQuota | Math.min | are leased in blocks up to the limit, each account and kind on its own
leaseQuota | === windowStartMs ? use | do not count after their window
control-plane/core/results/lost-result-store.ts by control-plane/test/repay-lost.test.ts: lost results on sqlite
repay | === 'paid' | gives the credit of a lost result back once
repay | !== 'charge' | a correction cost nothing, and keeps its first job from being paid back while its file is there
repay | !missing.has | a correction cost nothing, and keeps its first job from being paid back while its file is there
control-plane/core/results/lost-result-store.ts by control-plane/core/corrections/family-pairs.test.ts: of a family on sqlite
repay | open === | repayment waits for open corrections, and then ends the family
repay | === 'succeeded' | a loss that a correction made good gives no credit
control-plane/core/results/lost-results.ts by control-plane/core/results/results.test.ts
refusal | await blobs.check | a result is not lost › if the storage cannot be written
control-plane/core/results/repay-lost.ts by control-plane/test/repay-lost.test.ts
repayLost | newest !== undefined | lost results on sqlite › pays nothing if the newest result is missing, too, unless it is told so
control-plane/core/results/result-download.ts by control-plane/core/http/slow-callers.test.ts: callers who take the picture as their answer
openForReader | slow readers of pictures cost little memory, have few places and give them back
openForReader | reply.raw.once | who is gone when the picture is opened holds neither a place nor the file
control-plane/core/results/result-tokens.ts by control-plane/core/results/results.test.ts
make | hash | the database › opens nothing, and is no part of the link
control-plane/queue/unsettled-jobs.ts by control-plane/core/jobs/settled.test.ts
settle | || job | a step of a job's end on sqlite › is done later, once, however many replicas sweep at once
control-plane/core/secrets/secret-box.ts by control-plane/core/secrets/sealed.test.ts
sealTextByAll | map( | the token of a result › is shown by every replica at every step of a change of the key
control-plane/storage/directory-store.ts by control-plane/storage/directories.test.ts
openRead | await this | a directory that is gone, as that of a disk that is not mounted › says nothing of its files
control-plane/core/submission/acceptance-gate.ts by test/contract/doors.test.ts
requireAble | if (refusal | POST /v1/matting, JSON checks what the table says, in its order
control-plane/core/submission/acceptance-gate.ts by control-plane/core/models/model-field.test.ts
requireAble | if (nodes.length | a request without a model waits for no node of another one
control-plane/core/submission/fingerprint.ts by control-plane/core/models/model-field.test.ts
fingerprintOf | if (model | a key with another model, or none, is a conflict
control-plane/core/submission/fingerprint.ts by control-plane/test/compose/replicas.test.ts
derivedKeyHash | two replicas on sqlite › remove.bg › makes jobs of their own for other parameters, other keys, and other interfaces
control-plane/core/submission/image-upload.ts by control-plane/core/http/uploads-over-sockets.test.ts
#store | if (this | forms › that never end are cut at the bound of a body
control-plane/core/submission/matting-request.ts by control-plane/core/results/results.test.ts
requireAcceptedFormat | !== 'none' | a picture as the answer › a contradiction is refused before there is a job, and is not remembered
control-plane/core/submission/image-url.ts by control-plane/core/submission/request-fields.test.ts
requireBackgroundUrl | requireUsable | fields › a background by its URL is judged as image_url is, in its own name
control-plane/core/submission/pictures.ts by control-plane/removebg/removebg.test.ts
requireFits | if (finishing | an error of the remove.bg interface › invalid_crop_margin: {"crop":"true","crop_margin":"500px","scale":"10%"}
control-plane/core/fetching/callback-check.ts by control-plane/core/webhooks/callbacks.test.ts
requireOf | !isReadableSecret | half a pair, wrong text, wrong secret: refused, and nothing is left of it
control-plane/core/submission/submit-matting.ts by test/contract/doors.test.ts
existing | POST /v1/matting, JSON checks what the table says, in its order
control-plane/core/submission/submit-matting.ts by control-plane/core/webhooks/callbacks.test.ts
#insert | await recheckCaller | a held submission › counts for a cap that the key was given: /v1/matting/jobs
#insert | await recheckCaller | a held submission › makes no job by a key that was revoked while a name was looked up
control-plane/core/submission/submit-matting.ts by control-plane/portal/playground/playground.test.ts
#requireAccepting | await acceptance.requireOpen | the playground › is refused while the queue is full, and counts nothing
control-plane/queue/submit-job.ts by control-plane/test/compose/replicas.test.ts
findByKey | !isForgotten | two replicas on sqlite › remove.bg › replays for ten minutes, then makes one new job of requests on both replicas
control-plane/core/submission/upload-slot.ts by control-plane/core/http/uploads-over-sockets.test.ts
closed | === 0 | a background › shares its picture’s slot, so that two requests never wait for each other
control-plane/core/submission/upload-slot.ts by control-plane/core/submission/body-forms.test.ts
openWriter | a picture and its background take one place, given back once
control-plane/core/submission/upload-slot.ts by control-plane/core/submission/waiting-uploads.test.ts
#take | a body whose upload waits for its slot is not read on, and comes whole afterwards
  - if (body === undefined || this.#slots.mayEnter(use)) return await this.#slots.take(use);
  + if (body === undefined || body !== null) return await this.#slots.take(use);
gather | if ( | a picture and its background › gather one after the other, and lose no byte of either
control-plane/queue/end-job.ts by control-plane/core/queue/queue.test.ts: the queue on sqlite
finish | || job | || ! | a fence › serves the last claim and its holder alone: a job running
finish | || ! | a failure › ends any open job, a success one that runs
finish | if (job.finishedAtMs | a success › is one, however often it is said
control-plane/queue/end-job.ts by control-plane/core/queue/end-job.test.ts
ending | await transact | jobs on sqlite › endings › a body that cannot be rendered leaves job and money as they were
fail | ...( | jobs on sqlite › endings › a retryable failure frees the key, and the next request is a new job
fail | ? { idempotency_key_hash | jobs on sqlite › endings › failure returns the credit from every open state, and is replayed
fail | where(isHeldBy | the fence of a job on mysql › an ending that is overtaken by its own replica ends nothing
fail | where(isHeldBy | the fence of a job on mysql › a job does not end under a lease that was given back meanwhile
control-plane/core/queue/matting-ends.ts by control-plane/core/queue/queue.test.ts: the queue on sqlite
SUCCEEDS_FROM | a failure › ends any open job, a success one that runs
  - ['running']
  + ['accepted', 'fetching', 'ready', 'running']
succeedBy.ending.happened | && job | a success › is one, however often it is said
control-plane/queue/funding/credit.ts by control-plane/core/test/accounts/keys.test.ts: policies of keys on sqlite
endingBy | === 'release' | && cap | a released credit returns to the cap, a charged one does not
control-plane/queue/funding/credit.ts by control-plane/core/jobs/settled.test.ts: a step of a job's end on sqlite
endingBy | if (ended | is left out alone if it throws
control-plane/core/jobs/job-funding.ts by control-plane/core/test/accounts/ledger-audit.test.ts
KINDS | sql.lit( | the ledger's audit on sqlite › both audits find another account's job, and a playground job with an entry
control-plane/queue/job.ts by control-plane/portal/playground/allowance.test.ts
isUnpaid | the playground on sqlite › writes no ledger entry and moves no balance, however a job ends
control-plane/core/deletion/remove-job.ts by control-plane/core/deletion/remove-job.test.ts: a deletion on sqlite
kindOf | === 'processing' | leaves a job that a node has, and one that failed, but for the reference
remove | !== apiKeyId | of another key’s job, or of an unknown job, finds nothing
control-plane/queue/idempotency.ts by control-plane/core/jobs/job-store.test.ts
isForgotten | keys that end on sqlite › are kept while their time runs, and freed once it is over
  - readAtMs - finishedAtMs
  + readAtMs
control-plane/queue/submit-job.ts by control-plane/core/jobs/job-store.test.ts
#submit | if (twin | jobs on sqlite › submission › finds the earlier job of a key and leaves the credits alone
#submit | === id | jobs on sqlite › submission › repeated by itself after a lost answer is the same success
control-plane/core/corrections/family.ts by control-plane/core/corrections/families.test.ts: a correction on sqlite
countInFamily | if (!counted | is one of so many of its family, however many come to two replicas at once
control-plane/core/corrections/family.ts by control-plane/core/corrections/family-pairs.test.ts: of a family on sqlite
endKeeping | repayment waits for open corrections, and then ends the family
  - .set({ kept_until: nowMs })
  + .set({ kept_until: 9e15 })
control-plane/core/deletion/family-deletion.ts by control-plane/core/corrections/family-pairs.test.ts: of a family on sqlite
endFamily | || corrects | deletion of a correction takes its matte, and fails those that begin with it
control-plane/core/submission/pictures.ts by control-plane/core/corrections/corrections.test.ts
removePictures | === undefined | a correction that is refused leaves the files of the first
control-plane/batches/batch.ts by control-plane/batches/batches.test.ts
findForKey | a batch from its submission to its end, by pages of its results
  - { id, api_key_id: apiKeyId }
  + { id }
control-plane/batches/batch.ts by control-plane/test/batch-pages.test.ts
findForAccount | the page of a batch › has its pictures, its failures and its key, and looks again while it is open
  - { id, account_id: accountId }
  + { id }
control-plane/database/mysql.ts by control-plane/core/test/outage.test.ts
#acquire | if (this.liveness | a server that answers nobody holds no caller, and is asked again alone
control-plane/database/server-liveness.ts by control-plane/core/test/outage.test.ts
#takesConnection | a statement that waits at a server that answers others goes on
  - isInTime ||
  +
control-plane/batches/submit-batch.ts by control-plane/batches/batches.test.ts
joined | !== fingerprint | a batch from its submission to its end, by pages of its results
control-plane/accounts/ledger/ledger-writer.ts by control-plane/batches/transactions.test.ts: a batch on sqlite
RESERVE | gets on beside other requests of its account that never cease
  - .where(SLOTS_USED, '<', reservedMax)
  + .where(IN_FLIGHT, '<', reservedMax)
beginReserved | '-' | has a bounded number of open jobs, whoever enters them
control-plane/core/groups/job-groups.ts by control-plane/batches/transactions.test.ts: a batch on sqlite
room | jobsInFlightMax - | takes what the bound of jobs in flight leaves, whoever enters or submits
room | ofGroupsMax - | has a bounded number of open jobs, whoever enters them
control-plane/batches/batch-progress.ts by control-plane/batches/transactions.test.ts: a batch on sqlite
cancelBatch | that is cancelled ends the items that no node began, free of charge
  - .where('api_key_id', '=', apiKeyId)
finishBatch | if (row.callback_url | ends once, when its last job has, with one notification of all its items
control-plane/batches/batch-submission.ts by control-plane/batches/transactions.test.ts: a batch on sqlite
insertBatch | if (jobId | is one for one key, and its key is no job’s
requireFewOpen | >= OPEN_BATCHES_MAX | is refused beyond so many open ones of an account
control-plane/queue/submit-job.ts by control-plane/batches/transactions.test.ts: a batch on sqlite
#make | await this.#isTaken | is one for one key, and its key is no job’s
control-plane/queue/settled-steps.ts by control-plane/core/jobs/settled.test.ts: a step of a job's end on sqlite
#guarded | await tx.executeQuery(ROLLBACK | is left out alone if it throws
run | < STEP_ENDS_MAX | is left out with all others once it has ended the transaction twice
run | await tx | is left out alone if it throws
control-plane/core/webhooks/due-messages.ts by control-plane/portal/alerts/alerts-and-mails.test.ts: turns of mails on sqlite
listDue | if (met | go round the accounts, one mail each
listDue | === HEAD_MAX ? | reach everybody past accounts with more mails than are looked at
control-plane/core/webhooks/due-messages.ts by control-plane/portal/mails/mail-delivery.test.ts
wantedOf.row | === null | are sent by another replica where one dies over them, under the same id
control-plane/core/webhooks/outbox-listing.ts by control-plane/portal/jobs/work.test.ts
resend | === 'retried' | jobs › show every attempt of a notification, send it again while it is not delivered
control-plane/core/webhooks/outbox-store.ts by control-plane/core/webhooks/outbox.test.ts: the fence of a notification on sqlite
claim | where('fence' | a claim of a fence that was used is lost, the lease being free
claim | where('next_attempt_at' | a claim is lost before the next attempt is due
control-plane/core/webhooks/send-webhooks.ts by control-plane/core/webhooks/deliver-webhooks.test.ts
makeAttempt | if (key | several replicas › fail a notification whose body is not its own
callbackFailureOf | >= 300 | a notification › follows no redirect, whatever its status
`;
