import { guardsOf } from './guard.ts';

export const PACKAGE_GUARDS = guardsOf`
control-plane/compat/picture-form.ts by control-plane/removebg/removebg.test.ts
#end | || this | the answer › is made of what is not empty: clients send every field they know
control-plane/database/database.ts by control-plane/core/test/request-shares.test.ts
run | key: owner | others read and submit while an account holds its slots and its places to wait
inSlot | outsideRequests | work within a slot, and work of no request, waits for none
control-plane/database/database.ts by control-plane/core/test/accounts/ledger-audit.test.ts
readInstant | the ledger's audit on mysql › finds an account right that is charged between the parts of its sums
  - repeatable read
  + read committed
control-plane/database/leases.ts by control-plane/core/queue/queue.test.ts: the queue on sqlite
isFree | is null | a claim › is won once, raises the fence, and hides the job
isHeldBy | and lease_holder | a fence › serves the last claim and its holder alone: a job running
control-plane/database/leases.ts by control-plane/core/webhooks/outbox.test.ts: the fence of a notification on sqlite
isFree | is null | a claim is lost while another holds the lease
isHeldBy | and lease_holder | an earlier claim of the same replica ends nothing
isHeldBy | and lease_holder | a holder that was never given the lease ends nothing
control-plane/database/migrate.ts by control-plane/core/migrations.test.ts: migrations on mysql
TABLE_WAIT_S | let other statements pass while they wait for a transaction to end
  - TABLE_WAIT_S = 1
  + TABLE_WAIT_S = 86_400
control-plane/database/sqlite-group-commit.ts by control-plane/database/sqlite-group-commit.test.ts: transactions that are ready together
commit | await | share one commit, and resolve when others can see them
rollback | await | this.#run(ROLLBACK_TO | fail alone, after what they failed by is durable
#leave | || group | are bounded in number, so that other processes get the lock
#end | reject | all fail where the commit does, the rolled-back ones too, and the next group stands
control-plane/http/base64.ts by control-plane/core/submission/pictures.test.ts
decodeGroups | isWhole && | Base64 that is taken › takes a long text as it takes its pieces, whatever stands in it
control-plane/http/bodies.ts by control-plane/http/kept-bytes.test.ts
takeNext | a chunk that was read › is kept by nobody who waits for the next one
  - pace.received(chunk.length);
  + pace.received(Object.assign(pace, { chunk }).chunk.length);
control-plane/http/bodies.ts by control-plane/portal/session/half-sent-forms.test.ts
leftMs | min( | half-sent forms on the public port › have some seconds in all
control-plane/http/body-fields.ts by control-plane/core/http/json-bodies.test.ts
parametersOf | if (pairs | bounds › a query of as many empty pairs as there may be fields is empty
control-plane/http/connections.ts by control-plane/core/http/sockets.test.ts
watchConnections | bodies whose length a proxy may read differently
  - if (isFramedOtherwise(request)) {
  + if (isFramedOtherwise(request) && request.url === undefined) {
control-plane/http/connections.ts by control-plane/portal/session/half-sent-forms.test.ts
note | room | half-sent forms on the public port › from one network keep no caller with a key out, and no form that is sent
control-plane/http/json-fields.ts by control-plane/core/http/json-bodies.test.ts
#nestedOf | JSON.parse | unknown fields › refuses "{]", which is skipped by nobody
control-plane/http/json-fields.ts by control-plane/http/kept-bytes.test.ts
#textOf | this.#room | texts › are counted while they are read, and as what they become
control-plane/http/json-fields.ts by test/contract/bodies.test.ts
#object | if (given | endless unknown fields are read up to the bound alone › of remove.bg
#takeNested | if (! | endless arrays in arrays are read up to the bound alone › of remove.bg
control-plane/http/json-fields.ts by control-plane/batches/batch-bodies.test.ts
#items | === itemsMax | a batch is refused at its first item too many, and what follows is not read
#items | the items of a batch are counted as they arrive, whatever is in them
  - this.#room.grow(ITEM_BYTES);
control-plane/http/kept-bytes.ts by control-plane/http/kept-bytes.test.ts
#grow | min( | a buffer grows by what came, in its room, and keeps nothing beyond its bound
#grow | this.#room | bytes beyond the room are refused and not kept
control-plane/http/multipart.ts by control-plane/core/submission/body-forms.test.ts
PartText.end | if (this.#isAscii | clients in Java › UTF-8 under the name of another charset is refused too: its bytes say two things
PartText.end | a form: one source, which has bytes
control-plane/http/multipart.ts by control-plane/http/kept-bytes.test.ts
PartText.end | this.#room | texts › of parts are counted so, too
control-plane/http/multipart.ts by control-plane/http/multipart.test.ts: multipart
finish | if (this.#state | a body that is cut anywhere is refused
#takeDelimiterEnd | if (text | refuses a longer boundary, wherever the body is split
#delimiterStart | if ( | reads every lawful form, however it is cut
#takeEnd | || ! | refuses text behind the last boundary, wherever the body is split
#takeHead | === -1 & | refuses headers and parts that are too many
#takeDelimiterEnd | if (this | refuses headers and parts that are too many
requirePlainBytes | if ( | refuses Base64, wherever the body is split
control-plane/http/outgoing/guarded-fetch.ts by control-plane/http/outgoing/guarded-requests.test.ts
#follow | <= this | addresses behind a name › checks again for a redirect to the same name
#requireRedirect | requireOutgoingUrl | redirects › 302 to a forbidden place is refused, without connecting there
#requireRedirect | if (from | redirects › does not go from https to http, and does go from http to https
#follow | <= this | redirects › follows three, and not a fourth
control-plane/http/outgoing/open-addresses.ts by control-plane/core/fetching/urls.test.ts: addresses
isPublicAddress | && ! | ::1 is not public
isPublicAddress | && ! | 2002:7f00:1:: is not public
control-plane/http/outgoing/outgoing-guard.ts by control-plane/core/fetching/urls.test.ts
requireAddresses | every | counted at the dialer › connects to no forbidden address of a name, whatever its other addresses are
control-plane/http/outgoing/outgoing-guard.ts by control-plane/http/outgoing/guarded-requests.test.ts
isOpen | addresses behind a name › refuses this machine's own public address
createPinnedConnector | || ! | the pinned connector › does not speak to a peer that was not checked
createPinnedConnector | lookup, | the pinned connector › does not resolve the name again
control-plane/http/outgoing/outgoing-url.ts by control-plane/core/fetching/urls.test.ts: image_url
requireOutgoingUrl | if (!policy | refuses port
requireOutgoingUrl | if (url. | refuses userinfo
requireOutgoingUrl | if (!DEFAULT_PORTS | on a trusted network takes any address and port, but no other scheme and no userinfo
requirePublicHost | !isPrivateName | refuses names that lead inside
requirePublicHost | isOpenAddress | refuses ipv4 private
control-plane/http/request-headers.ts by control-plane/http/multipart.test.ts
readParameters | if ( | multipart › refuses two names, wherever the body is split
control-plane/http/request-headers.ts by control-plane/http/request-headers.test.ts
bodyTypeOf | === 'application/json' && ! | Content-Type › a charset counts for JSON alone, where it makes others of the bytes of ASCII
control-plane/http/request-headers.ts by control-plane/portal/test/attacks/identities.test.ts
addressOf | ?? ipv6 | guesses › takes the port that a proxy of ours has written for no part of the address
control-plane/http/urlencoded.ts by test/contract/bodies.test.ts
push | if (this.#pairs | endless pairs without a value are read up to the bound alone › of remove.bg
control-plane/mcp/arguments.ts by control-plane/mcp/mcp.test.ts
textOf | if (!isDeeper | a list of shapes that is nested deeply is refused by its name
readArguments | 0 && | a wrong call names its mistake, costs nothing and leaves nothing behind
control-plane/mcp/call-tools.ts by control-plane/mcp/half-sent-messages.test.ts
#getJob | get_job with a long text beside it holds no slot of uploads while it waits
control-plane/mcp/call-tools.ts by control-plane/mcp/mcp.test.ts
#removeBackground | await calling | an error of the account, the service or the picture says what to do
#answer | await this.#requireThere | a result whose file is gone is told of as lost
#getAccount | 'account' | a key with the scope read alone calls the tools of that scope, and no other
control-plane/mcp/mcp-interface.ts by control-plane/mcp/half-sent-messages.test.ts
requireMessageRate | isLargeMessage | the rate › of submissions admits a message that announces more than a small one
control-plane/mcp/mcp-interface.ts by control-plane/mcp/mcp.test.ts
requireOwnOrigin | !== own | pages of other origins are refused, before anything is read
control-plane/mcp/read-message.ts by control-plane/mcp/half-sent-messages.test.ts
readMessage | if ( | the rate › of submissions admits a message that becomes long, before the rest is read
readMessage | wholeMsMax | half-sent messages › that are small have some seconds in all, in chunks too
control-plane/mcp/read-message.ts by control-plane/mcp/read-message.test.ts
#takePlain | if (this.#texts > | invalid JSON gives null, and a message over the limit is refused
control-plane/rembg/local-programs.ts by control-plane/rembg/rembg.test.ts
requireLocalProgram | || isIpInNetworks | || BROWSER | isSentByService | a request without a key must come from nearby, without a proxy and not from a browser
authenticate | || key | a request without a key uses the operator’s key, with its credits and its policy
control-plane/rembg/rembg-interface.ts by control-plane/rembg/rembg.test.ts
tokenOf | || standInKeyId | a request without a key uses the operator’s key, with its credits and its policy
register | false | errors are a sentence, and those of a parameter a list with its place
control-plane/removebg/removebg-errors.ts by control-plane/removebg/removebg.test.ts
removebgErrorOf | return retryable | an error of the remove.bg interface › of a job: PROCESSING_FAILED, every attempt was lost, is processing_failed
`;
