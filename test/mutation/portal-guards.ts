import { guardsOf } from './guard.ts';

export const PORTAL_GUARDS = guardsOf`
control-plane/portal/alerts/alert-store.ts by control-plane/portal/alerts/alerts-and-mails.test.ts: low balances under two replicas on sqlite
queueNotice | where('told_at' | tells each threshold once, whoever looks and however often
queueNotice | where('available' | is not told of a balance that has risen since it was seen
queueNotice | === null || | is not noted as told while the quota keeps it back, and is told on the next day
alertStep | >= NOTICE_AGAIN_MS | is not told at every job that fails at the threshold
control-plane/portal/alerts/key-expiry-notices.ts by control-plane/portal/alerts/key-expiry-notices.test.ts: key expiry notices under two replicas on sqlite
listDue | && one | are sent again for a later expiry only
queueNotice | if (! | reach every owner once, 14 days before a key expires, whichever replica looks
listDue | === null || isWithheldToday | that the quota keeps back reach the remaining owners on the next day, once
control-plane/portal/alerts/notices.ts by control-plane/portal/alerts/alerts-and-mails.test.ts
writeNotice | === 0 & | low balances under two replicas on sqlite › is not noted as told where nobody could be told, and is told once somebody can
writeNotice | => ofMails | messages of a day on sqlite › tell of a threshold that is set anew no oftener
control-plane/portal/alerts/notices.ts by control-plane/portal/alerts/key-expiry-notices.test.ts
isLeft | split | key expiry notices under two replicas on sqlite › that the quota keeps back reach the remaining owners on the next day, once
control-plane/portal/documents/markdown.ts by control-plane/portal/documents/documents.test.ts
anchorOf | replaceAll(' | every link among the documents leads to a place on one
control-plane/portal/jobs/account-jobs.ts by control-plane/portal/test/attacks/every-route.test.ts
find | !== accountId | rights › another account’s things do not exist for a owner
control-plane/portal/jobs/correcting.ts by control-plane/portal/jobs/work.test.ts: jobs
originalOf | && job.kept | say why a correction is refused, and make nothing
originalOf | && may | show what was sent, below what people paint, while it is kept
control-plane/portal/jobs/job-pages.ts by control-plane/portal/jobs/work.test.ts
result | if (! | jobs › show one with its stages, and its result to those who may see results
control-plane/portal/jobs/job-pages.ts by control-plane/portal/jobs/results-zip.test.ts
zipLink | || !may | the list links it with its filter, to those who may see results
control-plane/portal/jobs/results-zip.ts by control-plane/portal/jobs/results-zip.test.ts
chooseResults | === ZIP_RESULTS_MAX | the archive is bounded by results, bytes and pages of the list
stemOf | RESERVED.test | the archive has every result of the list, under names that are safe everywhere
filesOf | if (!isGone | a result that went meanwhile is left out and named, and the others are whole
control-plane/portal/jobs/thumbnails.ts by control-plane/portal/jobs/work.test.ts: jobs
sendThumbnailOf | || publicState | show no thumbnail of a result that is over, though its file is there
hasThumbnail | && may | show the thumbnail of a result where one is, to those who may see results
control-plane/portal/mails/messages.ts by control-plane/portal/alerts/alerts-and-mails.test.ts: messages of a day on sqlite
countsOf | max: RECIPIENT_MAILS_MAX | to one address are bounded over all accounts, and for one account at half
addresseeOf | replace | to one address are bounded over all accounts, and for one account at half
takeTest | if (recent | test an address no oftener where it was removed and set again
countsOf | 'notice' | to an owner count for their own account alone
RECIPIENT_ACCOUNT_MAILS_MAX | to one address are bounded over all accounts, and for one account at half
control-plane/portal/mails/send-mails.ts by control-plane/portal/mails/smtp-sender.test.ts
SmtpSender.send | have one recipient, whatever it is called
  - to: { name: '', address: mail.to }
  + to: mail.to
control-plane/portal/migrations/0004-baseline.ts by control-plane/portal/orders/orders.test.ts
up | true | orders on sqlite › have a reference of their own, also where another order drew the same
control-plane/portal/operator-pages/operator-pages.ts by control-plane/portal/operator-pages/operator-pages.test.ts: pages of the operator
isOwnOrigin | && new | changes nothing by a form of another site or another session
requireSafeOrigin | throw new | signs nobody in where the key could be read on its way, or from another site
registerSignIn | failures.count | bounds how often a key is guessed from one network, and lets others in
backOf | test | keeps the language that was chosen, and leads back to no other host
control-plane/portal/operator-pages/operator-sessions.ts by control-plane/portal/operator-pages/operator-pages.test.ts
isValid | || ( | a form of the operator that is held › makes nothing once its session was signed out, or is over
isValid | || ( | a session of the operator › ends after its hours, with another key, and where a character differs
end | a session of the operator › that was signed out ends at every control plane, also after a restart
control-plane/portal/operator-pages/node-pages.ts by control-plane/portal/test/attacks/operator-routes.test.ts
registerNodePages | GET /operator/pages/nodes takes session
  - pages.get(NODES_PATH, async (request, reply) => {
  + pages.get(NODES_PATH, { config: { public: true } }, async (request, reply) => {
control-plane/portal/orders/ledger-history.ts by control-plane/portal/orders/ledger-and-payments.test.ts
export | && ! | exports whose readers are late › give their places to those of other accounts, the latest first
control-plane/portal/orders/order-pages.ts by control-plane/portal/orders/sales.test.ts
onSale | && one | the pages of orders › sell nothing else, and at no other price
control-plane/portal/orders/order-rules.ts by control-plane/portal/orders/money.test.ts
keptCredits | * BigInt | credits of a refund › what stays is worth no more than what stays paid, and a credit more would be
control-plane/portal/orders/order-rules.ts by control-plane/portal/orders/orders.test.ts: orders on sqlite
judgePayment | || currency | grant nothing for another sum or currency, and keep each once
judgePayment | === 'paid' | keep a second payment for the operator, and no more of them than their bound
control-plane/portal/orders/order-store.ts by control-plane/portal/orders/orders.test.ts: orders on sqlite
boundReached | if ( | are bounded in number, pending and a day, however many come at once
cancel | 'account_id' | are cancelled by their own account alone, while they are pending
place | if ( | have a reference of their own, also where another order drew the same
control-plane/portal/orders/order-store.ts by control-plane/portal/test/attacks/every-route.test.ts
find | === undefined | rights › another account’s things do not exist for a owner
control-plane/portal/orders/package-pages.ts by control-plane/portal/orders/sales.test.ts
renderReview | if (sold === | the pages of orders › refuse what was reviewed before the price list changed
control-plane/portal/orders/pay-order.ts by control-plane/portal/orders/orders.test.ts
accept | await applyWaitingRefunds | orders on sqlite › wait with a refund for its payment, or refuse it where it may not wait
control-plane/portal/orders/receive-payment.ts by control-plane/portal/orders/sales.test.ts
#receive | this.#rate.count | notifications of payments › are told to come later beyond their rate; forged ones do not spend it
control-plane/portal/orders/refund-order.ts by control-plane/portal/orders/orders.test.ts: orders on sqlite
applyRefund | min( | take back what is available, never what jobs hold, and say the rest
takeReleased | '>=' | take what a refund left with open jobs as they fail, and nothing of later jobs
takeReleased | ...( | take no more of a release than one refund left, the earliest first
judgedRefund | || left | if (same | refund each refund once, and no more than their price
control-plane/portal/orders/refund-order.ts by control-plane/portal/settled-steps.test.ts
takeReleased | if (kind = | steps that a job's end left out on sqlite › is lacked by the refund where it was spent meanwhile
control-plane/portal/orders/signed-notifications.ts by control-plane/portal/orders/sales.test.ts
read | if ( | a notification of a payment › is not believed without a good signature over its very bytes, of now
control-plane/portal/page/account-frame.ts by control-plane/portal/test/attacks/every-route.test.ts
renderPage | may( | rights › the navigation has exactly the pages that each role may see
control-plane/portal/page/assets.ts by control-plane/portal/page/brand.test.ts
registerAssets | header('content | the brand › stands on every page, errors too, and its logo runs no script
control-plane/portal/page/assets.ts by control-plane/portal/page/pages.test.ts
registerAssets | || asset | pages › an asset under the hash of another release, or outside of the folder, is not there
control-plane/portal/page/brand.ts by control-plane/portal/page/brand.test.ts
readable | if ( | the brand › has a colour that can be read on every ground of both themes
control-plane/portal/page/csv.ts by control-plane/portal/orders/sales.test.ts
csvLine | test | the page of credits › is exported as CSV that no spreadsheet takes for formulas
control-plane/portal/page/html.ts by control-plane/portal/page/pages.test.ts: views
element | if (!SAFE_ADDRESS | a page with a script as a link is not made
element | if (REFUSED | a page with an inline handler is not made
control-plane/portal/people/audit-page.ts by control-plane/portal/test/attacks/every-route.test.ts
registerAuditRoute | rights › a viewer has exactly the role’s rights, in the own account
  - permission: 'audit.read'
  + permission: 'jobs.read'
control-plane/portal/people/invitations.ts by control-plane/portal/people/people.test.ts: mails
linkLetter | seal( | hold no link that who reads the database could use
invite | messagesMax } : | are so many a day, and an invitation beyond them is refused before anything is made
control-plane/portal/people/invitations.ts by control-plane/portal/test/attacks/identities.test.ts
createLink | !== undefined | a name that somebody typed › gives no way into the account of whoever has that mail later
invite | ? undefined | an invitation where there is a mail server › is seen by its reader alone, whom it proves
control-plane/portal/people/link-store.ts by control-plane/portal/people/links-and-passwords.test.ts: a link on sqlite
personOfLink | if (!isTheirs | BY_MAIL and SEEN: who is proven joins by their password, and by nothing else
personOfLink | if (use.verifiedHash | BY_MAIL: a password that became another since it was shown is not set again
personOfLink | if (!person | SEEN: who is not proven joins no other account, even by their password
personOfLink | if (link | SIGN_IN: ends what was there of a mail that was never proven
takeOver | await tx. | SIGN_IN: ends what was there of a mail that was never proven
control-plane/portal/people/link-store.ts by control-plane/portal/people/people.test.ts
endLinks | await withdrawMails | mails › bring no invitation that was withdrawn, not even where an attempt to send it failed
control-plane/portal/people/people-store.ts by control-plane/portal/people/links-and-passwords.test.ts
changeMember | ? await | a link on sqlite › ends the links of who is removed or is no owner any more
setPassword | if (! | a password that changes on sqlite › is set without the one before by the session of a link, once
setPassword | if (session | a password that changes on sqlite › is not set by a session that has ended
control-plane/portal/people/people-store.ts by control-plane/portal/people/people.test.ts
changeMember | if (member.role === 'owner' | people › keep an owner
control-plane/portal/playground/playground-store.ts by control-plane/portal/playground/allowance.test.ts: the playground on sqlite
takeImage | where(eb | passes no allowance, however many ask two replicas at once
takeImage | '<', day | counts each day anew, and none twice where the clock is set back
giveImageBack | where('day_at' | counts each day anew, and none twice where the clock is set back
control-plane/portal/playground/playground-store.ts by control-plane/portal/test/methods/lost-answers.test.ts
giveBack | if (isTried | what changes something on sqlite › and whose answer is lost › playground.giveBack
control-plane/portal/playground/use-playground.ts by control-plane/portal/playground/playground.test.ts
#read | complete pictures are bounded on a replica, and an account has half of them
  - const { job } = await this.#complete.run({ key: accountId }, () => submit(sent));
  + const { job } = await submit(sent);
#submitCounted | if (made | the playground › gives back what made no job, and counts a job whose answer was lost
#submitCounted | if (!submitted | the playground › makes one job of a form that is sent twice
#requireKnown | if (!this.#trusted | the playground › takes no byte of a file before the form has shown its token
#requireKnown | if (!this.#known | the playground › takes no field that the form has not
control-plane/portal/session/account-guard.ts by control-plane/portal/page/pages.test.ts
requireAccess | filter | the door › lets no route start that names nobody, or two
control-plane/portal/session/account-guard.ts by control-plane/portal/test/attacks/every-route.test.ts
admit | if (! | rights › a viewer has exactly the role’s rights, in the own account
control-plane/portal/session/account-guard.ts by control-plane/portal/test/attacks/identities.test.ts: held forms
findPerson | accountId), | change no account but the one that their page was made for
control-plane/portal/session/authority.ts by control-plane/portal/people/authority.test.ts: the authority of people on sqlite
authorityRefusalOf | makes nothing of who was signed out just now
roleOf | === null | makes nothing of who was disabled just now
authorityRefusalOf | if (!may | makes nothing of who was demoted just now
authorityRefusalOf | === 0 | bounds what one person changes in a minute, over all replicas
control-plane/portal/session/guard.ts by control-plane/portal/operator-pages/operator-pages.test.ts
requireToken | if ( | pages of the operator › changes nothing by a form of another site or another session
guardRoutes | await admitAgain | a form of the operator that is held › makes nothing once its session was signed out, or is over
control-plane/portal/session/guard.ts by control-plane/portal/session/half-sent-forms.test.ts
guardRoutes | if (!isForm | half-sent forms on the public port › are refused for what their headers say before a byte is awaited
control-plane/portal/session/guard.ts by control-plane/portal/test/attacks/every-route.test.ts
requireOrigin | if ( | other sites › a form without our Origin is refused
requireToken | if ( | other sites › a form without the token of this session is refused
control-plane/portal/session/guard.ts by control-plane/portal/test/attacks/identities.test.ts: held forms
guardRoutes | await admitAgain | change no account but the one that their page was made for
readGuarded | await form | with a picture make no job once the person may not any more
control-plane/portal/session/roles.ts by control-plane/portal/test/attacks/every-route.test.ts
MEMBER | 'jobs.resend | rights › a member has exactly the role’s rights, in the own account
control-plane/portal/session/session-store.ts by control-plane/portal/people/links-and-passwords.test.ts
begin | if ( | a password that changes on sqlite › lets nobody in by the one before it, whoever verified it in time
control-plane/portal/session/session-store.ts by control-plane/portal/people/people.test.ts
end | where('user_id' | people who come in › see and end their sessions, and nobody else’s
control-plane/portal/session/session-store.ts by control-plane/portal/test/attacks/identities.test.ts
beginSession | await tx. | sessions › signing in again ends the session that the browser had
control-plane/portal/session/sign-in-path.ts by control-plane/portal/test/attacks/every-route.test.ts
returnPathOf | && ! | redirects › never leads elsewhere
control-plane/portal/session/visit.ts by control-plane/portal/session/forms.test.ts
parseForm | if (text | a form of the account area has a bound of its fields, empty ones too
parseForm | || MARKS_IN_A_ROW | a form of the account area has a bound of marks on one letter
control-plane/portal/settled-steps.ts by control-plane/portal/orders/orders.test.ts
SETTLED_STEPS | await takeReleased | orders on sqlite › take what a refund left with open jobs as they fail, and nothing of later jobs
control-plane/portal/settled-steps.ts by control-plane/portal/playground/allowance.test.ts
SETTLED_STEPS | && retryable | the playground on sqlite › counts the pictures of a day, and gives back what failed by no fault of theirs
control-plane/portal/sign-in/identity-entry.ts by control-plane/portal/sign-in/provider.test.ts
personOfIdentity | if (grants | leave nothing here without a group of the list
changeMembership | await endMembership | may from now on what their groups say, and lose sessions with the group
control-plane/portal/sign-in/known-browsers.ts by control-plane/portal/test/attacks/identities.test.ts
#sealOf | passwordHash] | a name that somebody typed › has known browsers until the password is another, and few guesses by all of them
control-plane/portal/sign-in/passwords.ts by control-plane/portal/sign-in/passwords.test.ts: slots of hashing
#run | networkOf | are shared by network: many addresses of one are one
#run | ? this | of who is known are not behind those of strangers, from however many networks
control-plane/portal/sign-in/provider-sign-in.ts by control-plane/portal/sign-in/provider.test.ts
finish | providerName | are called by what the provider says with its host, as nobody else can be
finish | if (waitMs | have the provider asked few times an address for what is no way back of theirs
control-plane/portal/sign-in/sign-in-throttle.ts by control-plane/portal/people/links-and-passwords.test.ts
take | return waitMs | rows of the throttle on sqlite › are made by attempts that are counted, and by none that is refused
control-plane/portal/sign-in/sign-in-throttle.ts by control-plane/portal/sign-in/sign-in.test.ts: the throttle of sign-in on sqlite
#keysOf | throttleKeyOf('browsers' | counts all known browsers of a person together
take | if ( | counts the attempts of all replicas, however many come at once
SignInThrottle.giveBack | if ( | counts those that succeed, too, once there are very many of one mail
control-plane/portal/sign-in/sign-in.ts by control-plane/portal/sign-in/sign-in.test.ts
withPassword | knownId( | takes a slot of hashing as one who is known in a browser of theirs alone
withPassword | await passwords | a sign-in that is refused › has done the same work, whether the person is known or not
control-plane/portal/sign-in/use-links.ts by control-plane/portal/test/attacks/identities.test.ts
acceptInvitation | if (waitMs | a name that somebody typed › is asked for the password, with a bound, before it joins
`;
