// docs/openapi.json sha256 d29b85242193cd88c615f6f08737afb14849cb5d58bf9cfb1f49f7294811d5c2

export interface paths {
    "/health": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Check whether requests can be served
         * @description The database responds and has every migration, its sequences are not behind its rows, and no variant requires a token that the service would not ask for. The same as `/readyz`, for platforms that reserve paths ending in `z`, such as Cloud Run.
         */
        get: operations["health"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/livez": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Check whether the process is alive */
        get: operations["livez"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read the metrics
         * @description In the Prometheus text format.
         */
        get: operations["metrics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/readyz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Check whether requests can be served
         * @description The database responds and has every migration, its sequences are not behind its rows, and no variant requires a token that the service would not ask for.
         */
        get: operations["readyz"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/admissions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Mint an admission token
         * @description Makes a token with which the subject can add units once: of the given variant, or of any variant whose stock has the admission `token`. The request that adds them has the token in `Admission-Token`, and the subject in `Customer-Id`, which is the cart's id if left out.
         *
         *     The token is not stored. A repetition under the same idempotency key has null in its place: if the first response was lost, mint another token under a new key.
         *
         *     Without `METERED_COMMANDS_ENABLED` this path does not exist.
         */
        post: operations["mint-admission"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/carts/{cart_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read a cart
         * @description An unknown cart is empty. One with more than 1000 reservations or requests has several pages. A row that exists during the whole listing is on exactly one of them.
         */
        get: operations["get-cart"];
        put?: never;
        post?: never;
        /**
         * Empty a cart
         * @description Releases all its holds and cancels all its queued requests. An unknown cart is empty.
         */
        delete: operations["remove-cart"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/carts/{cart_id}/checkout": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Check out a cart
         * @description Commits all its holds, all or nothing: stock and reserved decrease by the units held. Refused while the cart has requests that are not decided, and while it has lost a hold to expiry that was neither removed nor added again.
         */
        post: operations["checkout-cart"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/carts/{cart_id}/extend": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Move the deadlines of all holds of a cart
         * @description All or nothing. Refused if a hold would last longer in total than holds may.
         */
        post: operations["extend-cart"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/carts/{cart_id}/items": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Add units of a variant, units of a block, kits, or several lines, to a cart
         * @description Queues a request and responds 202; its outcome can be read at status_url. A request for a digital variant is done at once. A request for an unknown variant or block fails. The body has one of five forms: variant_id and quantity; block and unit_ids, for the units that are named; block and any_of, for that many units; kit_id and quantity, as a request of one line; lines, each with one of these forms or one_of. All units of a request are held, or none; with partial, what there is of each line, in whole kits. Once a request of lines is finished, it has what was held for each. With wait_for_stock a request that comes up short has the status waiting, and its place in line as position. Units that become free are offered to those in line: the request is then done, and its reservation is held for claim_seconds. Units of an allotment are held only for a request that names it.
         */
        post: operations["add-item"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/carts/{cart_id}/items/{variant_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Remove a variant from a cart
         * @description Releases the cart's holds of it and cancels the queued requests for it. To remove a variant that is not in the cart is no error. variant_id may be the id of a block. Units that are held for a kit are removed with the kit only.
         */
        delete: operations["remove-item"];
        options?: never;
        head?: never;
        /**
         * Change how many units of a variant a cart holds
         * @description Queues a request, as adding does. It is decided after the cart's earlier requests for the variant. The old hold is released and the new one made, both or neither. To hold none, remove the item. variant_id may be the id of a block: the cart keeps as many of its units as the quantity allows, and gets any others. What the cart holds from an allotment is changed separately. While the cart holds units of the variant for a kit, it fails (part_of_kit).
         */
        patch: operations["set-item"];
        trace?: never;
    };
    "/v1/carts/{cart_id}/kits/{kit_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Remove a kit from a cart
         * @description Releases all parts of all kits of that id that the cart holds, and cancels the queued requests that name the kit. To remove a kit that is not in the cart is no error.
         */
        delete: operations["remove-kit"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/carts/{cart_id}/transfer": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Move what a cart holds to another cart
         * @description All or nothing: a guest logs in. Each hold keeps its id and deadline. The limits of the other cart and of the customer in Customer-Id are checked. What is past its deadline is not moved.
         */
        post: operations["transfer-cart"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/checkouts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Begin a checkout with a payment in between
         * @description Locks everything that the cart holds to the checkout: until it ends, the holds do not expire, and requests that would change them are refused with `checkout_in_progress`. The checkout is committed once it is paid, and releases the holds if the payment fails, or is not made by the deadline.
         *
         *     With a `callback_url`, the service calls the shop's payment service there until it reports a result. Without one, the shop reports it at `/v1/checkouts/{checkout_id}/payment`; it may do so with a callback, too.
         *
         *     A cart has one unfinished checkout. For a shop that takes the payment first there is `/v1/carts/{cart_id}/checkout`.
         */
        post: operations["begin-checkout"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/checkouts/{checkout_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read a checkout
         * @description With wait the response comes when the checkout has ended or the time is over, whichever is first. With If-None-Match the response is 304 if nothing changed by then.
         */
        get: operations["get-checkout"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/checkouts/{checkout_id}/payment": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Report the result of a checkout's payment
         * @description `paid` commits what is locked to the checkout: stock and reserved decrease. If the commit does not succeed at once, the response has the status `finalizing`, and the service commits it soon. `failed` releases the holds.
         *
         *     A result that comes after the checkout has ended, or after its deadline, is refused with `conflicting_state`, and `actual` is the checkout's status. If it is `paid` and the units were released, the checkout has an `alert` from then on: the payment must be given back.
         *
         *     The key needs the scope `stock`: the back office receives the payments. A key with the scope `cart` is no less trusted: it chooses the `callback_url`, and may check a cart out without a payment. Keep both on the shop's servers.
         */
        post: operations["answer-checkout"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/groups/{group}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read a group of variants
         * @description The sums of its variants, and its limit. A group exists while a variant names it, and once it was set.
         */
        get: operations["get-group"];
        /**
         * Set the limit of a group of variants
         * @description Changes the fields that are given. A limit that is exceeded already leaves what is held.
         */
        put: operations["put-group"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/key": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read the key of this call
         * @description The tenant and the scopes of the key that the call is made with.
         */
        get: operations["read-key"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/kits": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List kits
         * @description In the order of their ids. A kit that exists during the whole listing is on exactly one page.
         */
        get: operations["list-kits"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/kits/{kit_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read a kit */
        get: operations["get-kit"];
        /**
         * Set the parts of a kit
         * @description Creates the kit, or replaces its parts. Requests that were accepted before keep the parts that they have, and holds stay.
         */
        put: operations["put-kit"];
        post?: never;
        /**
         * Delete a kit
         * @description Later requests for it fail. What carts hold of it stays held, and requests that were accepted before are decided.
         */
        delete: operations["delete-kit"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/lanes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read the state of the lanes
         * @description The lanes serve all tenants. Of the hot variants, only your own are listed.
         */
        get: operations["list-lanes"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/lanes/hot/variants/{variant_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Pin a variant to the hot lane
         * @description The same as a stock's lane `hot`. The change is recorded in the audit log with the key that made it; a variant that is pinned already is not changed.
         */
        put: operations["pin-variant"];
        post?: never;
        /**
         * Remove the pin of a variant
         * @description The same as a stock's lane `auto`: the service chooses the lane, also if the stock's lane was `normal` before the pin. The change is recorded in the audit log with the key that made it. A variant that is not pinned to the hot lane is not changed.
         */
        delete: operations["unpin-variant"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/lanes/{lane}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        /**
         * Pause, resume or cap a lane
         * @description Changes the fields that are given, for all tenants, and within two seconds for all processes. A change is recorded in the audit log with the key that made it. A field that already has the value is not a change.
         */
        patch: operations["control-lane"];
        trace?: never;
    };
    "/v1/live": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Open a live connection
         * @description A WebSocket (RFC 6455). The client sends {"subscribe":"<channel>"} and {"unsubscribe":"<channel>"}. It receives frames
         *     {"channel","event","version","payload"}: for each channel first the event `snapshot` with the state, then deltas with the versions that
         *     follow. A frame that combines several events also has `first_version`. After a gap the next frame is a snapshot again.
         *
         *     Browsers send an Origin, which must be the service's own or one that it was configured to allow.
         */
        get: operations["connect-live"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/live/tickets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Make a ticket for a live connection
         * @description A ticket opens one connection to `/v1/live`, within 60 s. The connection has the tenant and the scopes of the key. A page of a browser gets its ticket from a service that has the key, and needs no key of its own.
         *
         *     The ticket is not stored. A repetition under the same idempotency key has null in its place.
         */
        post: operations["mint-live-ticket"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ops/history": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read the history of a cart, a request, a reservation or a variant
         * @description Its present state and its audit rows. A cart has those of its newest 200 reservations and failed requests, and of their checkouts. A variant has those of its stock and of its lane, and of its newest 50 reservations and failed requests, as far as they are held or among your newest 5,000. If there are more, before reads the older ones.
         */
        get: operations["get-ops-history"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ops/overview": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read the state of the service
         * @description What the dashboard shows. The channel `ops.overview` sends the same each second. Lanes, sweeps and subscriptions serve all tenants of the cell; cells are all of the service; the rest is your own.
         */
        get: operations["overview"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ops/search": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Find a cart, a request, a reservation or a variant
         * @description Finds your own: carts, requests and reservations by their whole ids, variants by the beginning of their ids, in upper and lower case as given.
         */
        get: operations["search"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/requests/{request_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read a request
         * @description With wait the response comes when the request is finished or the time is over, whichever is first. With If-None-Match the response is 304 if nothing changed by then.
         */
        get: operations["get-request"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/requests/{request_id}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Follow a request until it is finished
         * @description Server-sent events: one with the present state, then one for each change of the status or the position, which is read every second. The response ends after the event with the final status; a client that connects again with its id gets 204, after which an EventSource stops. The response also ends after 300 s, when the service stops, and soon after its key is revoked or its tenant moves to another cell; a client then connects again. A comment is sent every 10 s.
         */
        get: operations["stream-request"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/requests/{request_id}/retry": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Retry a failed request
         * @description Queues a new request for the same cart and the same units, as adding does, in the name of the key that retries it. Its retry_of is the failed request, which stays as it is. A request is retried once: if the retry fails, retry that one. A retry does not undo what the buyer decided later: a cancelled request is not retried, and neither is one of kind set if the cart has a later request for the variant. A retry is not counted in rates and needs no admission token.
         */
        post: operations["retry-request"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/reservations/{reservation_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read a reservation */
        get: operations["get-reservation"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/reservations/{reservation_id}/commit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Commit a reservation, or a part of it
         * @description Stock and reserved decrease by its units. With quantity or unit_ids only these are committed, as a reservation of its own, and the rest stays held; the response then has both.
         */
        post: operations["commit-reservation"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/reservations/{reservation_id}/extend": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Move a reservation's deadline */
        post: operations["extend-reservation"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/reservations/{reservation_id}/history": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read the history of a reservation */
        get: operations["get-reservation-history"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/reservations/{reservation_id}/release": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Release a reservation
         * @description Returns its units. A reservation that is past its deadline is expired: the response is 409, and the expiry is recorded.
         */
        post: operations["release-reservation"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/reservations/{reservation_id}/return": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Return units of a committed reservation
         * @description The units are for sale again, and returned_quantity grows; the status stays committed. Of a block, unit_ids names the units. 409 if so many units, or these, are not committed.
         */
        post: operations["return-reservation"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/stocks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List stocks
         * @description In the order of their ids; of one group, if it is given. A variant that exists during the whole listing is on exactly one page. With variant_id, up to 200 times, the stocks of these variants in that order: what a page of products needs.
         */
        get: operations["list-stocks"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/stocks/import": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Set many stocks
         * @description One stock per line, as Set a stock does, up to 64 MiB. CSV has a header with variant_id, stock and any of tracked, backorder, hold_ttl_seconds, max_per_cart and lane; NDJSON has one object per line with the same fields. Lines take effect in their order, in transactions of 500. An invalid line is reported, and the others take effect. Lines set absolute values, so the same import can be sent again. The problem of an import that ends early has the report of what it did.
         */
        post: operations["import-stocks"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/stocks/transfer": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Move units from one stock to another
         * @description Both change or neither does. Units that are held are not moved.
         */
        post: operations["transfer-stock"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/stocks/{variant_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read a stock */
        get: operations["get-stock"];
        /**
         * Set a stock
         * @description Creates the variant, or changes the fields that are given; the others stay as they are.
         */
        put: operations["put-stock"];
        post?: never;
        /**
         * Delete a stock
         * @description Deletes a variant, or a block with its units; refused while units are held. The record stays. Requests for it fail with unknown_variant, and its id can be used again.
         */
        delete: operations["delete-stock"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/stocks/{variant_id}/adjust": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Add units to a stock or remove units */
        post: operations["adjust-stock"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/stocks/{variant_id}/allotments": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the allotments of a variant
         * @description In the order of their ids, without those that have ended.
         */
        get: operations["list-allotments"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/stocks/{variant_id}/allotments/{allotment_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read an allotment
         * @description One that has ended is not found.
         */
        get: operations["get-allotment"];
        /**
         * Set units of a variant aside
         * @description Creates the allotment, or replaces its quantity and its end. Its units are in reserved, not in available, and only a request that names it holds them. Refused for less than was taken from it, and for more than is free. Units that are released go back to it; what is left returns to sale at its end, and holds stay.
         */
        put: operations["put-allotment"];
        post?: never;
        /**
         * End an allotment
         * @description What is left returns to sale. What carts hold from it stays held; once it is released, it is for sale.
         */
        delete: operations["delete-allotment"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/stocks/{variant_id}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Follow the availability of a variant
         * @description Server-sent events with the whole state: the present one (snapshot), and then each change (delta). The id is the version of the state. After a change that was missed, and after the projection was folded again (rebuild), the state is sent again. A client that connects again with the id of the last event gets that state only if it has changed. The response ends after 300 s, when the service stops, and soon after its key is revoked or its tenant moves to another cell; a client then connects again. A comment is sent every 10 s.
         */
        get: operations["stream-stock"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/units/{block}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the units of a block
         * @description In the order of their ids, with the counts of the whole block. A unit that exists during the whole listing is on exactly one page.
         */
        get: operations["list-units"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/units/{block}/import": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Add units to a block
         * @description Makes the block if there is none. One unit per line, up to 64 MiB. CSV has a header with unit_id and, if wanted, position; NDJSON has one object per line with the same fields. A unit without a position follows the last one; units with consecutive positions are neighbours. Lines take effect in their order, in transactions of 500. A unit that the block has already is unchanged, so the same import can be sent again. An invalid line is reported, and the others take effect. The problem of an import that ends early has, in units_report, what it did.
         */
        put: operations["import-units"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/units/{block}/{unit_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read a unit and its history */
        get: operations["get-unit"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        Accepted: {
            /**
             * Format: int32
             * @description How many units were asked for, whichever they are.
             */
            any_of?: number;
            /** @description The block, which is also the variant_id; left out for units that are counted. */
            block?: string;
            /** @description Only neighbours were asked for. */
            contiguous?: boolean;
            /** @enum {string} */
            lane: "hot" | "normal";
            /**
             * Format: int64
             * @description When to read it first, in milliseconds.
             */
            poll_after_ms: number;
            /**
             * Format: int64
             * @description The place in line of a waiting request, from 1; left out of others.
             */
            position?: number;
            /** Format: uuid */
            request_id: string;
            /**
             * @description Nothing is held yet.
             * @enum {string}
             */
            reservation_status: "queued" | "waiting";
            /**
             * Format: uuid
             * @description The failed request that it retries; left out of other requests.
             */
            retry_of?: string;
            /** @enum {string} */
            status: "queued" | "processing" | "waiting";
            /**
             * Format: uri-reference
             * @description Where to read the request and its outcome.
             */
            status_url: string;
            /** @description The units that were asked for; once they are held, those of the reservation. */
            unit_ids?: string[];
        };
        AddItemBody: {
            /**
             * @description With variant_id: the allotment whose units are wanted.
             * @example fan-club
             */
            allotment?: string;
            /**
             * Format: int32
             * @description How many units of the block are wanted, whichever they are.
             * @example 4
             */
            any_of?: number;
            /**
             * @description The block whose units are wanted, in place of variant_id and quantity.
             * @example hall
             */
            block?: string;
            /** @description With any_of: only neighbours, units with consecutive positions. */
            contiguous?: boolean;
            /**
             * @description The kit that is wanted, quantity times, in place of variant_id.
             * @example camping
             */
            kit_id?: string;
            /** @description Several lines, in place of all other fields but partial. */
            lines?: components["schemas"]["LineWish"][];
            /** @description With lines: hold what there is of each line. Otherwise all units of all lines are held, or none. */
            partial?: boolean;
            /**
             * Format: int32
             * @description Units.
             * @example 2
             */
            quantity?: number;
            /**
             * @description The units of the block that are wanted.
             * @example [
             *       "A1",
             *       "A2"
             *     ]
             */
            unit_ids?: string[];
            /**
             * @description The variant's id.
             * @example shirt-m
             */
            variant_id?: string;
            /** @description With variant_id, or block and any_of: if too few units are free, the request waits in line for them. */
            wait_for_stock?: boolean;
        } & (unknown | unknown | unknown | unknown | unknown);
        AdjustStockBody: {
            /**
             * Format: int64
             * @description Units to add, below 0 to remove units; not 0.
             * @example -3
             */
            delta: number;
            /**
             * @description Why, for the audit log.
             * @example damaged
             */
            reason?: string;
        };
        Admission: {
            /** Format: date-time */
            expires_at: string;
            /** @description The customer's id. */
            subject: string;
            /** @description The plaintext, which only the first response has; null in a repetition. */
            token: string | null;
            /** @description The only variant that the token is valid for; null for any. */
            variant_id: string | null;
        };
        Alive: {
            /** @enum {string} */
            status: "ok";
        };
        Allotment: {
            /** @description The allotment's id, unique within its variant. */
            allotment_id: string;
            /**
             * Format: int64
             * @description Units that a new request can hold from it.
             */
            available: number;
            /** Format: date-time */
            created_at: string;
            /**
             * Format: date-time
             * @description When what is left returns to sale; null for never.
             */
            expires_at: string | null;
            /**
             * Format: int64
             * @description Units that were set aside, those included that are held or were committed.
             */
            quantity: number;
            /** Format: date-time */
            updated_at: string;
            /** @description The variant's id. */
            variant_id: string;
        };
        AllotmentPage: {
            items: components["schemas"]["Allotment"][];
            /** @description The cursor of the next page; null on the last page. */
            next_cursor: string | null;
        };
        Availability: {
            /**
             * Format: int64
             * @description Stock minus reserved.
             */
            available: number;
            backorder: boolean;
            /**
             * Format: int64
             * @description Units held, due holds included until their expiry is recorded.
             */
            reserved: number;
            /** Format: int64 */
            stock: number;
            tracked: boolean;
            /** @description The variant's id. */
            variant_id: string;
        };
        BeginCheckoutBody: {
            /**
             * Format: uri
             * @description Where the shop's payment service reports whether the payment was made. Left out, the shop reports it itself.
             * @example https://pay.shop.example/holdfast
             */
            callback_url?: string;
            /**
             * @description The cart's id.
             * @example cart-17
             */
            cart_id: string;
            /**
             * @description The shop's name of the payment, 1 to 200 characters.
             * @example order-4711
             */
            payment_reference: string;
        };
        Cart: {
            /** @description The cart's id. */
            cart_id: string;
            /** @description The latest 20 that failed, latest first, so that a client can restore a quantity. They are the same on every page. */
            failed: components["schemas"]["CartRequest"][];
            /** @description The cursor of the next page of reservations and requests; null on the last page. */
            next_cursor: string | null;
            /** @description Requests that are not decided yet, oldest first. */
            requests: components["schemas"]["CartRequest"][];
            /** @description In any status, newest first. */
            reservations: components["schemas"]["Reservation"][];
        };
        CartRequest: {
            /** @description The allotment's id, unique within its variant. */
            allotment?: string;
            /**
             * Format: int32
             * @description How many units were asked for, whichever they are.
             */
            any_of?: number;
            /** @description The block, which is also the variant_id; left out for units that are counted. */
            block?: string;
            /** @description Only neighbours were asked for. */
            contiguous?: boolean;
            /** Format: date-time */
            created_at: string;
            /**
             * @description add asks for more units, wait too but waits in line for them, set asks for a quantity in place of the present one, lines for several lines.
             * @enum {string}
             */
            kind: "add" | "set" | "wait" | "lines";
            /** @enum {string} */
            lane: "hot" | "normal";
            /** Format: int32 */
            quantity: number;
            /** @enum {string|null} */
            reason: "out_of_stock" | "unknown_variant" | "not_on_sale" | "quantity_not_allowed" | "limit_exceeded" | "part_of_kit" | "unknown_kit" | "unknown_allotment" | "cancelled" | "expired_in_queue" | "internal_error" | null;
            /** Format: uuid */
            request_id: string;
            /** @enum {string} */
            status: "queued" | "processing" | "waiting" | "failed";
            /** @description The units that were asked for; once they are held, those of the reservation. */
            unit_ids?: string[];
            /** Format: date-time */
            updated_at: string;
            /** @description Left out of a request of several lines. */
            variant_id?: string;
        };
        CheckedOut: {
            committed: components["schemas"]["Reservation"][];
        };
        Checkout: {
            /**
             * @description Set if it was paid and does not receive its units, so that the payment must be given back; else null.
             * @enum {string|null}
             */
            alert: "paid_too_late" | "stock_lost" | null;
            /** @description The cart's id. */
            cart_id: string;
            /** Format: uuid */
            checkout_id: string;
            /** @description What it committed; empty unless the status is committed. */
            committed: components["schemas"]["Reservation"][];
            /** Format: date-time */
            created_at: string;
            /**
             * Format: date-time
             * @description A checkout that is not paid by then is compensated.
             */
            deadline: string;
            payment_reference: string;
            /**
             * @description Why it is compensated or failed, else null.
             * @enum {string|null}
             */
            reason: "payment_failed" | "payment_timeout" | "stock_lost" | null;
            /**
             * @description validating waits for the payment, finalizing is paid. The others are final: committed, compensated (not paid, the holds are released), failed (paid, and a hold was lost).
             * @enum {string}
             */
            status: "validating" | "finalizing" | "committed" | "compensated" | "failed";
            /**
             * Format: uri-reference
             * @description Where to read the checkout.
             */
            status_url: string;
            /** Format: date-time */
            updated_at: string;
        };
        CommittedPart: {
            /** @description A reservation of its own, with its part_of; or the hold, if all of it was committed. */
            committed: components["schemas"]["Reservation"];
            /** @description What is still held, with its id and deadline; null if nothing is. */
            rest: components["schemas"]["Reservation"] | null;
        };
        ControlLaneBody: {
            /**
             * @description A paused lane queues requests and decides none.
             * @example false
             */
            paused?: boolean;
            /**
             * Format: int32
             * @description Requests per second over all processes; null for no cap.
             * @example 500
             */
            rate_cap?: number | null;
        };
        Deleted: {
            /** @description The variant's id. */
            variant_id: string;
        };
        DeletedKit: {
            /** @description The kit's id. */
            kit_id: string;
        };
        Diversion: {
            /** Format: date-time */
            since: string;
            why: string;
        };
        EndedAllotment: {
            /** @description The allotment's id, unique within its variant. */
            allotment_id: string;
            /** @description The variant's id. */
            variant_id: string;
        };
        Event: {
            /** @example reservation.held */
            action: string;
            /**
             * @description user, system, job or anonymous, and the beginning of the API key or the name of the job.
             * @example user hf_abc123
             */
            actor: string;
            /** @description The target after the change. */
            after: components["schemas"]["RecordedState"] | null;
            /** Format: date-time */
            at: string;
            /**
             * Format: int64
             * @description Increases in the order of the changes of one target.
             */
            audit_id: number;
            /** @description The target before the change; null for its first row. */
            before: components["schemas"]["RecordedState"] | null;
            /** @description Empty for none. */
            correlation_id: string;
            /** @description Empty for none. */
            reason: string;
            /**
             * Format: uuid
             * @description The reservation, request or checkout that changed, or the audit log's id of a stock or a variant's lane.
             */
            target_id: string;
        };
        ExtendBody: {
            /**
             * Format: int32
             * @description By how many seconds the deadlines move.
             * @example 300
             */
            seconds: number;
        };
        Extended: {
            extended: components["schemas"]["Reservation"][];
        };
        FieldError: {
            /** @description The field's name in the body, the query, the path or the header. */
            field: string;
            message: string;
        };
        Found: {
            id: string;
            /** @enum {string} */
            kind: "cart" | "request" | "reservation" | "variant";
            /**
             * @description Its present state, for a person.
             * @example held: 2 × shirt-m for cart cart-1
             */
            summary: string;
        };
        Group: {
            /**
             * Format: int64
             * @description The sum of what is available of each variant.
             */
            available: number;
            /**
             * Format: int32
             * @description Of which last seconds max_per_customer counts, from the hold; null for all that is on record.
             */
            customer_period_seconds: number | null;
            /** @description The group's id. */
            group: string;
            /**
             * Format: int32
             * @description How many units of all variants a customer may hold and have bought; null for no limit.
             */
            max_per_customer: number | null;
            /**
             * Format: int64
             * @description Units held.
             */
            reserved: number;
            /**
             * Format: int64
             * @description Units that exist, of all variants that are not digital.
             */
            stock: number;
            /**
             * Format: int64
             * @description How many variants are in it: GET /v1/stocks?group= lists them.
             */
            variants: number;
        };
        History: {
            /** @description The newest 1000, oldest first. */
            items: components["schemas"]["Record"][];
        };
        HotVariant: {
            /** @description A pinned variant stays hot. The service moves the others. */
            pinned: boolean;
            /**
             * Format: double
             * @description Requests that arrive, per second.
             */
            rate_per_second: number;
            /**
             * Format: date-time
             * @description When it came to this state, or began to.
             */
            since: string;
            /**
             * Format: int32
             * @description Its slot of the hot lane.
             */
            slot: number;
            /**
             * @description entering and leaving while the other lane has requests for it.
             * @enum {string}
             */
            state: "entering" | "hot" | "leaving";
            /** @description The variant's id. */
            variant_id: string;
            /** @description Why the service moved it; null if a pin did. */
            why: string | null;
        };
        ImportReport: {
            /** Format: int64 */
            imported: number;
            /** Format: int64 */
            rejected: number;
            rejected_lines: components["schemas"]["RejectedLine"][];
        };
        Key: {
            /** @description The cell in which it is; left out where there is one. */
            cell?: string;
            /** @description The beginning of the key, as the audit log has it. */
            prefix: string;
            scopes: string[];
            /** @description The name of the key's tenant. */
            tenant: string;
        };
        Kit: {
            /**
             * Format: int64
             * @description How many whole kits a new request can hold, by what is available of each part; null if all parts are digital or backordered without a limit.
             */
            available: number | null;
            /** Format: date-time */
            created_at: string;
            /** @description The kit's id. */
            kit_id: string;
            parts: components["schemas"]["KitPart"][];
            /** Format: date-time */
            updated_at: string;
        };
        KitPage: {
            items: components["schemas"]["Kit"][];
            /** @description The cursor of the next page; null on the last page. */
            next_cursor: string | null;
        };
        KitPart: {
            /**
             * Format: int32
             * @description Units in one kit.
             * @example 1
             */
            quantity: number;
            /**
             * @description The variant's id.
             * @example tent
             */
            variant_id: string;
        };
        LaneState: {
            /** Format: int64 */
            depth: number;
            lane: string;
            /** Format: double */
            oldest_age_seconds: number;
            paused: boolean;
            /** Format: int32 */
            rate_cap: number | null;
            /** Format: double */
            rate_per_second: number;
            /** Format: int64 */
            slots: number;
        };
        Lanes: {
            /** @description Set while your requests for other variants are decided in a separate stream, because too many of them are queued; else null. */
            diversion: components["schemas"]["Diversion"] | null;
            /** @description Your variants in the hot lane, the busiest first, 1,000 at most. */
            hot_variants: components["schemas"]["HotVariant"][];
            /** @description Over all tenants and processes. */
            items: components["schemas"]["LaneState"][];
        };
        LineOutcome: {
            /** @description The allotment's id, unique within its variant. */
            allotment?: string;
            /** @description The block's id. */
            block?: string;
            /**
             * Format: int64
             * @description Units, or whole kits, that are held for the line, or were committed since; 0 for a digital variant.
             */
            held: number;
            /** @description The kit's id. */
            kit_id?: string;
            one_of?: string[];
            /**
             * Format: int32
             * @description Units, or kits, asked for.
             */
            quantity: number;
            /**
             * @description Why the line came up short; left out if it did not.
             * @enum {string}
             */
            reason?: "out_of_stock" | "unknown_variant" | "not_on_sale" | "quantity_not_allowed" | "limit_exceeded" | "part_of_kit" | "unknown_kit" | "unknown_allotment" | "cancelled" | "expired_in_queue" | "internal_error";
            /** @description Those that were made for the line, in their present state. */
            reservations: components["schemas"]["Reservation"][];
            /** @description The variant's id. */
            variant_id?: string;
        };
        LineWish: {
            /**
             * @description With variant_id: the allotment whose units are wanted.
             * @example fan-club
             */
            allotment?: string;
            /**
             * Format: int32
             * @description How many units of the block are wanted, whichever they are.
             * @example 4
             */
            any_of?: number;
            /**
             * @description The block whose units are wanted, in place of a variant and a quantity.
             * @example hall
             */
            block?: string;
            /** @description With any_of: only neighbours, units with consecutive positions. */
            contiguous?: boolean;
            /**
             * @description The kit that is wanted, quantity times, in place of a variant.
             * @example camping
             */
            kit_id?: string;
            /**
             * @description Variants in the order of preference, in place of variant_id: the first that has all units serves the line. Unknown ones are skipped.
             * @example [
             *       "shirt-m@berlin",
             *       "shirt-m@paris"
             *     ]
             */
            one_of?: string[];
            /**
             * Format: int32
             * @description Units, or kits.
             * @example 2
             */
            quantity?: number;
            /** @description With one_of: each variant gives what it has, in their order, until the quantity is reached. */
            split?: boolean;
            /**
             * @description The units of the block that are wanted.
             * @example [
             *       "A1",
             *       "A2"
             *     ]
             */
            unit_ids?: string[];
            /**
             * @description The variant's id.
             * @example shirt-m
             */
            variant_id?: string;
        } & (unknown | unknown | unknown | unknown | unknown);
        MintAdmissionBody: {
            /**
             * @description The customer's id.
             * @example customer-17
             */
            subject: string;
            /**
             * Format: int32
             * @description How long the token is valid; 600 if left out.
             * @example 600
             */
            ttl_seconds?: number;
            /**
             * @description The variant's id.
             * @example shirt-m
             */
            variant_id?: string;
        };
        Overview: {
            /** Format: date-time */
            at: string;
            /** @description The cells of the service, in short; left out where there is one. */
            cells?: components["schemas"]["OverviewCell"][];
            /** @description Your next 20 holds to fall due. */
            expiring: components["schemas"]["OverviewHold"][];
            /** @description 20 failed requests among your newest 5,000 requests: first those with internal_error and expired_in_queue, the newest first. */
            failed: components["schemas"]["OverviewFailed"][];
            /** @description Over all tenants and processes. */
            lanes: components["schemas"]["OverviewLane"][];
            /** @description Readers of the audit log, for all tenants, 50 at most. */
            subscriptions: components["schemas"]["OverviewSubscription"][];
            /** @description Maintenance, for all tenants. */
            sweeps: components["schemas"]["OverviewSweep"][];
            /** @description Your busiest variants, 20 at most: up to 10 hot ones, those with the most arriving requests, those of your newest requests, and then the first by id. */
            variants: components["schemas"]["OverviewVariant"][];
        };
        OverviewCell: {
            /** @description Its database responds. The figures of another one are those of before, or 0. */
            available: boolean;
            /**
             * Format: double
             * @description The age of the oldest record that a reader of the audit log has not received.
             */
            behind_seconds: number;
            /** @description The name of the cell. */
            cell: string;
            /**
             * Format: double
             * @description Requests that are decided, per second.
             */
            decided_per_second: number;
            /**
             * Format: int64
             * @description Requests that wait for their decision, in all lanes.
             */
            depth: number;
            /**
             * Format: double
             * @description How long the oldest of them has waited.
             */
            oldest_seconds: number;
            /** @description It has your tenant, whose state the rest of the overview is. */
            own: boolean;
            /** @description The lanes that are paused. */
            paused: string[];
            /**
             * Format: double
             * @description For how long the oldest work of maintenance is due; 0 for none.
             */
            sweep_seconds: number;
        };
        OverviewFailed: {
            cart_id: string;
            /** Format: date-time */
            failed_at: string;
            /**
             * @description add asks for more units, wait too but waits in line for them, set asks for a quantity in place of the present one, lines for several lines.
             * @enum {string}
             */
            kind: "add" | "set" | "wait" | "lines";
            /** Format: int32 */
            quantity: number;
            reason: string;
            /** Format: uuid */
            request_id: string;
            /**
             * Format: uuid
             * @description The request that retries it; null for none.
             */
            retried_by: string | null;
            /** @description The variant's id; / for several lines. */
            variant_id: string;
        };
        OverviewHold: {
            cart_id: string;
            /** Format: date-time */
            expires_at: string;
            /** Format: int64 */
            quantity: number;
            /** Format: uuid */
            reservation_id: string;
            /** @description The variant's id. */
            variant_id: string;
        };
        OverviewLane: {
            /**
             * Format: double
             * @description Requests that arrive, per second; null where HOT_DETECT is off.
             */
            arrivals_per_second: number | null;
            /**
             * Format: double
             * @description Requests that are decided, per second.
             */
            decided_per_second: number;
            /**
             * Format: int64
             * @description Requests that wait for their decision.
             */
            depth: number;
            /** @enum {string} */
            lane: "hot" | "normal";
            /**
             * Format: double
             * @description How long the oldest of them has waited.
             */
            oldest_seconds: number;
            paused: boolean;
            /**
             * Format: int32
             * @description Requests that may be decided, per second; null for no cap.
             */
            rate_cap: number | null;
            /**
             * @description The reason why its requests wait, as a sentence; null if they do not wait.
             * @example Capped at 5 per second; 31 per second arrive.
             */
            slow: string | null;
        };
        OverviewSubscription: {
            /**
             * Format: int64
             * @description Failed deliveries since the last successful one.
             */
            failures: number;
            /**
             * Format: int64
             * @description An upper bound of the records that it has not received.
             */
            lag: number;
            /**
             * Format: double
             * @description The age of the oldest of them.
             */
            lag_seconds: number;
            /** @description The error of the last failed one; null without failures. */
            last_error: string | null;
            name: string;
        };
        OverviewSweep: {
            /**
             * Format: double
             * @description For how long the oldest of its work is due; 0 for none.
             */
            lag_seconds: number;
            /**
             * Format: date-time
             * @description When it last succeeded; null where that is not known. The metrics count it.
             */
            last_success_at: string | null;
            /** @description sweep expires due holds. recover ends due checkouts. */
            name: string;
        };
        OverviewVariant: {
            /** Format: int64 */
            available: number;
            backorder: boolean;
            /**
             * Format: int64
             * @description Requests that wait in line for it; 1000 means that many or more.
             */
            in_line: number;
            /**
             * @description The lane of its next request.
             * @enum {string}
             */
            lane: "hot" | "normal";
            /** @description A pinned variant stays hot. */
            pinned: boolean;
            /**
             * Format: double
             * @description Requests that arrive, per second.
             */
            rate_per_second: number;
            /** Format: int64 */
            reserved: number;
            /**
             * Format: int64
             * @description Units that are left in its allotments, which are in reserved too.
             */
            set_aside: number;
            /** @description No unit is available, and it allows no backorder. */
            sold_out: boolean;
            /** Format: int64 */
            stock: number;
            tracked: boolean;
            /** @description The variant's id. */
            variant_id: string;
        };
        PartBody: {
            /**
             * Format: int64
             * @description How many units.
             * @example 1
             */
            quantity?: number;
            /**
             * @description Which units, of a block.
             * @example [
             *       "A1"
             *     ]
             */
            unit_ids?: string[];
        };
        PaymentBody: {
            /**
             * @example paid
             * @enum {string}
             */
            result: "paid" | "failed";
        };
        Pin: {
            /**
             * @description The lane that takes new requests now.
             * @enum {string}
             */
            lane: "hot" | "normal";
            /** @description The variant stays in the hot lane until the pin is removed. */
            pinned: boolean;
            /** @description The variant's id. */
            variant_id: string;
        };
        PresentCart: {
            /** @description The latest 20 that failed, latest first. */
            failed: components["schemas"]["CartRequest"][];
            /** @description The oldest 20 that are not decided yet, oldest first. */
            requests: components["schemas"]["CartRequest"][];
            /** @description The newest 20, newest first. */
            reservations: components["schemas"]["Reservation"][];
        };
        Problem: {
            /**
             * @description The status that was found.
             * @enum {string}
             */
            actual?: "queued" | "processing" | "waiting" | "done" | "failed" | "held" | "committed" | "released" | "expired" | "validating" | "finalizing" | "compensated";
            /**
             * @description What is wrong, for a program. Stable.
             * @enum {string}
             */
            code: "admission_refused" | "admission_required" | "below_reserved" | "cart_empty" | "cell_unavailable" | "checkout_in_progress" | "conflicting_state" | "forbidden" | "hold_expired" | "idempotency_key_reused" | "internal" | "invalid" | "lifetime_exceeded" | "limit_exceeded" | "malformed" | "method_not_allowed" | "not_a_block" | "not_found" | "not_ready" | "origin_refused" | "out_of_stock" | "outcome_unknown" | "over_budget" | "over_limit" | "overloaded" | "part_of_kit" | "requests_pending" | "return_exceeds" | "tenant_moving" | "too_large" | "unauthorized" | "unsupported_media_type" | "upgrade_required";
            /** @description What is wrong, for a person. The text may change. */
            detail: string;
            /** @description The fields that are not valid, with the code invalid. */
            errors?: components["schemas"]["FieldError"][];
            /**
             * @description The status that the request needs.
             * @enum {string}
             */
            expected?: "queued" | "processing" | "waiting" | "done" | "failed" | "held" | "committed" | "released" | "expired" | "validating" | "finalizing" | "compensated";
            /** @description What an import of stocks did before it ended early. */
            report?: components["schemas"]["ImportReport"];
            /**
             * Format: uuid
             * @description The request that retries it already.
             */
            retried_by?: string;
            /** @description The scope that the key lacks, the first one if one of several is needed. */
            scope?: string;
            /**
             * Format: int64
             * @description The HTTP status.
             */
            status: number;
            /** @description The text of the HTTP status. */
            title: string;
            /** @description What an import of units did before it ended early. */
            units_report?: components["schemas"]["UnitImportReport"];
            /** @description The exhausted policies, by their names in RateLimit-Policy. */
            violated_policies?: string[];
        };
        PutAllotmentBody: {
            /**
             * Format: date-time
             * @description When what is left returns to sale; null, or left out, for never.
             * @example 2026-12-24T12:00:00Z
             */
            expires_at?: string | null;
            /**
             * Format: int64
             * @description Units to be set aside, those included that were taken from it.
             * @example 100
             */
            quantity: number;
        };
        PutGroupBody: {
            /**
             * Format: int32
             * @description Of which last seconds max_per_customer counts, from the hold; null or 0 for all that is on record.
             * @example 86400
             */
            customer_period_seconds?: number | null;
            /**
             * Format: int32
             * @description How many units of all its variants a customer may hold and have bought; null or 0 for no limit.
             * @example 4
             */
            max_per_customer?: number | null;
        };
        PutKitBody: {
            /** @description Different variants, counted or digital. */
            parts: components["schemas"]["KitPart"][];
        };
        PutStockBody: {
            /**
             * @description token: a caller that adds units to a cart needs an admission token, which requires METERED_COMMANDS_ENABLED. New variants are open.
             * @enum {string}
             */
            admission?: "open" | "token";
            /**
             * @description Allow holds beyond the stock; false for new variants.
             * @example false
             */
            backorder?: boolean;
            /**
             * Format: int32
             * @description How long units are held that were offered to a request in line; null or 0 for the time of any hold.
             * @example 600
             */
            claim_seconds?: number | null;
            /**
             * Format: int32
             * @description Of which last seconds max_per_customer counts, from the hold; null or 0 for all that is on record.
             * @example 86400
             */
            customer_period_seconds?: number | null;
            /**
             * @description The group of the variant, such as its product; null or empty for none. A group's sums are at /v1/groups/{group}, where it can have a limit per customer.
             * @example shirt
             */
            group?: string | null;
            /**
             * Format: int32
             * @description How long a hold lasts; null or 0 for the service's default.
             * @example 900
             */
            hold_ttl_seconds?: number | null;
            /**
             * @description hot pins the variant to the hot lane, normal to the normal one; auto removes the pin, and the service chooses the lane.
             * @enum {string}
             */
            lane?: "auto" | "hot" | "normal";
            /**
             * Format: int32
             * @description How many units one cart may hold at one time; null or 0 for no limit. It does not limit a customer, who can use several carts, or check out and add again.
             * @example 5
             */
            max_per_cart?: number | null;
            /**
             * Format: int32
             * @description How many units a customer may hold and have bought; null or 0 for no limit.
             * @example 2
             */
            max_per_customer?: number | null;
            /**
             * Format: int64
             * @description How far holds may exceed the stock; needs backorder. null or 0 for no limit.
             * @example 50
             */
            preorder_max?: number | null;
            /**
             * Format: int32
             * @description The least quantity of a cart; null or 0 for 1.
             * @example 6
             */
            quantity_min?: number | null;
            /**
             * Format: int32
             * @description Of what the quantity of a cart is a multiple; null or 0 for 1.
             * @example 6
             */
            quantity_step?: number | null;
            /**
             * Format: date-time
             * @description Until when units can be added; null for no end.
             * @example 2026-12-24T00:00:00Z
             */
            sale_ends_at?: string | null;
            /**
             * Format: date-time
             * @description When units can be added, by the database's clock; null for at once.
             * @example 2026-12-01T10:00:00Z
             */
            sale_starts_at?: string | null;
            /**
             * Format: int64
             * @description Units that exist. A new variant needs it, unless it is not tracked.
             * @example 100
             */
            stock?: number;
            /**
             * @description False makes the variant digital. New variants are tracked.
             * @example true
             */
            tracked?: boolean;
        };
        Record: {
            /** @example reservation.held */
            action: string;
            /** @description The beginning of an API key, or the name of a job. */
            actor_id?: string;
            /** @enum {string} */
            actor_kind: "user" | "system" | "job" | "anonymous";
            /** @description The reservation after the change. */
            after: components["schemas"]["RecordedState"] | null;
            /**
             * Format: int64
             * @description Increases in the order of the reservation's changes.
             */
            audit_id: number;
            /** @description The reservation before the change; null for its first row. */
            before: components["schemas"]["RecordedState"] | null;
            correlation_id?: string;
            /** Format: date-time */
            created_at: string;
            reason?: string;
            /**
             * Format: uuid
             * @description The reservation that changed, in the history of a unit.
             */
            reservation_id?: string;
        };
        RecordedState: {
            admission?: string;
            /** @description Of a checkout that needs a person. */
            alert?: string;
            backorder?: boolean;
            cart_id?: string;
            /** Format: uuid */
            checkout_id?: string;
            /** Format: date-time */
            deadline?: string;
            /** Format: date-time */
            expires_at?: string;
            /** Format: int32 */
            hold_ttl_seconds?: number | null;
            /** @description The cart of a reservation. */
            holder_id?: string;
            /**
             * Format: int32
             * @description How many reservations a checkout has.
             */
            holds?: number;
            lane?: string;
            /** Format: int32 */
            max_per_cart?: number | null;
            payment_reference?: string;
            /** Format: int64 */
            preorder_max?: number;
            /** Format: int64 */
            quantity?: number;
            /** @description Why a request failed, or a checkout ended. */
            reason?: string;
            release_reason?: string;
            /** Format: int64 */
            reserved?: number;
            /** @description The variant of a reservation. */
            resource_key?: string;
            /** @description What a reservation is of; inventory.variant is a variant. */
            resource_kind?: string;
            resource_window?: components["schemas"]["WindowDoc"];
            /** Format: uuid */
            retried_by?: string;
            /** Format: uuid */
            retry_of?: string;
            /** @description The rules of the sale of a stock. */
            sale?: components["schemas"]["Sale"];
            /**
             * Format: int32
             * @description The stream in which a hot variant is decided.
             */
            slot?: number;
            /** @description Of a reservation, a request or a checkout. */
            status?: string;
            /** Format: int64 */
            stock?: number;
            tracked?: boolean;
            unit_ids?: string[];
            /**
             * Format: int64
             * @description How many units a checkout has.
             */
            units?: number;
            variant_id?: string;
        };
        RejectedLine: {
            field: string;
            /** Format: int64 */
            line: number;
            message: string;
        };
        ReleaseBody: {
            /**
             * @description Why; cart_removed if left out.
             * @enum {string}
             */
            reason?: "cart_removed" | "payment_failed" | "abandoned" | "operator";
        };
        Removed: {
            /** @description Requests that were queued and will not be decided: they failed with reason cancelled. */
            cancelled: string[];
            /**
             * Format: int64
             * @description Units that were released. Holds past their deadline have expired and are not counted.
             */
            released: number;
        };
        Request: {
            /** @description The allotment whose units were asked for. */
            allotment?: string;
            /**
             * Format: int32
             * @description How many units were asked for, whichever they are.
             */
            any_of?: number;
            /** @description The block, which is also the variant_id; left out for units that are counted. */
            block?: string;
            /** @description The cart's id. */
            cart_id: string;
            /** @description Only neighbours were asked for. */
            contiguous?: boolean;
            /** Format: date-time */
            created_at: string;
            /**
             * @description add asks for more units, wait too but waits in line for them, set asks for a quantity in place of the present one, lines for several lines.
             * @enum {string}
             */
            kind: "add" | "set" | "wait" | "lines";
            /**
             * @description Where it was queued.
             * @enum {string}
             */
            lane: "hot" | "normal";
            /** @description What is held for each line; left out of other requests. */
            lines?: components["schemas"]["LineOutcome"][];
            /**
             * Format: int64
             * @description How many earlier requests for the same hot variant are not decided; 1000 means that many or more; null in the normal lane and once the request is finished. Of a waiting request, its place in line from 1; 10000 means that place or a later one.
             */
            position: number | null;
            /**
             * Format: int32
             * @description Units asked for, of all lines together.
             */
            quantity: number;
            /**
             * @description Why it failed, else null.
             * @enum {string|null}
             */
            reason: "out_of_stock" | "unknown_variant" | "not_on_sale" | "quantity_not_allowed" | "limit_exceeded" | "part_of_kit" | "unknown_kit" | "unknown_allotment" | "cancelled" | "expired_in_queue" | "internal_error" | null;
            /** Format: uuid */
            request_id: string;
            /** @description The present state of the hold that was made; null if there is none: not decided, failed, or a digital variant. */
            reservation: components["schemas"]["Reservation"] | null;
            /**
             * Format: uuid
             * @description The request that retries it; left out if there is none, and for keys without the scope ops.
             */
            retried_by?: string;
            /**
             * Format: uuid
             * @description The failed request that it retries; left out of other requests.
             */
            retry_of?: string;
            /**
             * @description done and failed are final; waiting: in line for units, until they are offered.
             * @enum {string}
             */
            status: "queued" | "processing" | "waiting" | "done" | "failed";
            /** @description The units that were asked for; once they are held, those of the reservation. */
            unit_ids?: string[];
            /** Format: date-time */
            updated_at: string;
            /** @description Left out of a request of several lines. */
            variant_id?: string;
        };
        Reservation: {
            /** @description The allotment from which the units were taken; left out if there is none. */
            allotment?: string;
            /** @description The block, which is also the variant_id; left out for units that are counted. */
            block?: string;
            /** @description The cart's id. */
            cart_id: string;
            /**
             * Format: date-time
             * @description When it was committed or released, or its expiry was recorded. Null before that; an expiry can be recorded some time after expires_at.
             */
            ended_at: string | null;
            /**
             * Format: date-time
             * @description From then on the hold is expired, and its units are available to others.
             */
            expires_at: string;
            /**
             * Format: date-time
             * @description The lifetime cap counts from here. It is earlier than held_at after a change of quantity.
             */
            first_held_at: string;
            /** Format: date-time */
            held_at: string;
            /** @description The kit that it is a part of; left out if it is of none. */
            kit_id?: string;
            /**
             * Format: uuid
             * @description The reservation of which this one was committed as a part; left out if it was not.
             */
            part_of?: string;
            /**
             * Format: int64
             * @description Units.
             */
            quantity: number;
            /**
             * @description Why it was released or expired, else null.
             * @enum {string|null}
             */
            release_reason: "cart_removed" | "payment_failed" | "abandoned" | "replaced" | "operator" | "incomplete" | "ttl" | null;
            /**
             * Format: uuid
             * @description The request that it was made for: its own id, or that of part_of.
             */
            request_id: string;
            /** Format: uuid */
            reservation_id: string;
            /**
             * Format: int64
             * @description How many of the units came back after they were committed; left out if none did.
             */
            returned_quantity?: number;
            /**
             * @description A hold is expired from expires_at on, by the database's clock.
             * @enum {string}
             */
            status: "held" | "committed" | "released" | "expired";
            /** @description The units of the block, in the order of their positions, without those that were returned; left out for units that are counted. */
            unit_ids?: string[];
            /** @description The variant's id. */
            variant_id: string;
        };
        ReturnBody: {
            /**
             * Format: int64
             * @description How many units; of a block, left out.
             * @example 1
             */
            quantity?: number;
            /**
             * @description Why, for the audit log.
             * @example did not fit
             */
            reason?: string;
            /**
             * @description Which units, of a block.
             * @example [
             *       "A1"
             *     ]
             */
            unit_ids?: string[];
        };
        Sale: {
            /** Format: int32 */
            claim_seconds?: number;
            /** Format: int32 */
            customer_period_seconds?: number;
            /** Format: date-time */
            ends_at?: string;
            group?: string;
            /** Format: int32 */
            max_per_customer?: number;
            /** Format: int32 */
            quantity_min?: number;
            /** Format: int32 */
            quantity_step?: number;
            /** Format: date-time */
            starts_at?: string;
        };
        Search: {
            /** @description At most 20 variants, and one of each other kind. */
            items: components["schemas"]["Found"][];
            q: string;
        };
        SetItemBody: {
            /**
             * @description Change what the cart holds from this allotment. Otherwise what it holds from none is changed.
             * @example fan-club
             */
            allotment?: string;
            /**
             * Format: int32
             * @description Units of the variant that the cart is to hold.
             * @example 3
             */
            quantity: number;
        };
        Stock: {
            /**
             * @description token: a caller that adds units to a cart needs an admission token.
             * @enum {string}
             */
            admission: "open" | "token";
            /**
             * Format: int64
             * @description Units that a new request can hold: stock minus reserved plus the units of due holds. Of the due holds of a variant, the 200 oldest are counted: with more of them it is a lower bound.
             */
            available: number;
            /** @description Holds may exceed the stock. */
            backorder: boolean;
            /**
             * Format: int32
             * @description How long units are held that were offered to a request in line; null for the time of any hold.
             */
            claim_seconds: number | null;
            /** Format: date-time */
            created_at: string;
            /**
             * @description The lane that takes new requests now.
             * @enum {string}
             */
            current_lane: "hot" | "normal";
            /**
             * Format: int32
             * @description Of which last seconds max_per_customer counts, from the hold; null for all that is on record.
             */
            customer_period_seconds: number | null;
            /** @description The group of the variant; null for none. */
            group: string | null;
            /**
             * Format: int32
             * @description How long a hold lasts; null for the service's default.
             */
            hold_ttl_seconds: number | null;
            /**
             * @description The lane that was asked for.
             * @enum {string}
             */
            lane: "auto" | "hot" | "normal";
            /**
             * Format: int32
             * @description How many units one cart may hold at one time; null for no limit. It does not limit a customer, who can use several carts, or check out and add again.
             */
            max_per_cart: number | null;
            /**
             * Format: int32
             * @description How many units a customer may hold and have bought; null for no limit. Released, expired and returned ones do not count.
             */
            max_per_customer: number | null;
            /**
             * Format: int64
             * @description How far holds may exceed the stock of a variant that allows backorder, a part of available; null for no limit.
             */
            preorder_max: number | null;
            /**
             * Format: int32
             * @description The least quantity of a cart; null for 1.
             */
            quantity_min: number | null;
            /**
             * Format: int32
             * @description Of what the quantity of a cart is a multiple; null for 1.
             */
            quantity_step: number | null;
            /**
             * Format: int64
             * @description Units held.
             */
            reserved: number;
            /**
             * Format: date-time
             * @description Until when units can be added; null for no end. What is held then can be checked out, and its quantity lowered.
             */
            sale_ends_at: string | null;
            /**
             * Format: date-time
             * @description When units can be added, by the database's clock; null for at once.
             */
            sale_starts_at: string | null;
            /**
             * Format: int64
             * @description Units that exist. Below 0 only after checkouts of a backordered variant.
             */
            stock: number;
            /** @description False for a digital variant: requests for it are done at once and hold nothing. */
            tracked: boolean;
            /** Format: date-time */
            updated_at: string;
            /** @description The variant's id. */
            variant_id: string;
        };
        StockPage: {
            items: components["schemas"]["Stock"][];
            /** @description The cursor of the next page; null on the last page. */
            next_cursor: string | null;
            /** @description Those of variant_id that do not exist. */
            unknown?: string[];
        };
        Ticket: {
            /** Format: date-time */
            expires_at: string;
            /** @description The ticket, which only the first response has; null in a repetition. */
            ticket: string | null;
        };
        Timeline: {
            /** @description The newest 200 before the given audit_id, oldest first. */
            events: components["schemas"]["Event"][];
            id: string;
            /** @enum {string} */
            kind: "cart" | "request" | "reservation" | "variant";
            /** @description There are older ones. */
            more: boolean;
            /** @description The present state, in the form of its kind; null if only the audit rows are left. */
            now: components["schemas"]["PresentCart"] | components["schemas"]["Request"] | components["schemas"]["Reservation"] | components["schemas"]["Stock"] | null;
        };
        TransferCartBody: {
            /**
             * @description The cart that the holds move to.
             * @example customer-17
             */
            to: string;
        };
        TransferStockBody: {
            /**
             * @description The variant's id.
             * @example shirt@berlin
             */
            from: string;
            /**
             * Format: int64
             * @description Units to move.
             * @example 10
             */
            quantity: number;
            /**
             * @description Why, for the audit log.
             * @example rebalance
             */
            reason?: string;
            /**
             * @description The variant's id.
             * @example shirt@paris
             */
            to: string;
        };
        Transferred: {
            from: components["schemas"]["Stock"];
            to: components["schemas"]["Stock"];
        };
        TransferredCart: {
            /**
             * Format: int64
             * @description Units.
             */
            moved: number;
            /** @description The holds that were moved, as they are now. */
            reservations: components["schemas"]["Reservation"][];
        };
        Unit: {
            /**
             * Format: int64
             * @description The place of the unit within its block. Units with consecutive positions are neighbours.
             */
            position: number;
            /**
             * @description pending_inactive is held for a cart, inactive is committed. A unit whose hold is due is pending_inactive until the expiry is recorded, and can be held.
             * @enum {string}
             */
            status: "active" | "pending_inactive" | "inactive";
            /** @description The unit's id, unique within its block. */
            unit_id: string;
        };
        UnitDetail: {
            /** @description The block's id. */
            block: string;
            /** @description The changes of all reservations that had the unit: the newest 1000, oldest first. before and after do not list the units. */
            history: components["schemas"]["Record"][];
            /** Format: int64 */
            position: number;
            /** @description The reservation that holds the unit, or that committed it; null for an active unit, and if the reservation was purged. */
            reservation: components["schemas"]["Reservation"] | null;
            /** @enum {string} */
            status: "active" | "pending_inactive" | "inactive";
            /** @description The unit's id, unique within its block. */
            unit_id: string;
        };
        UnitImportReport: {
            /** Format: int64 */
            added: number;
            /** Format: int64 */
            rejected: number;
            rejected_lines: components["schemas"]["RejectedLine"][];
            /** Format: int64 */
            unchanged: number;
        };
        UnitPage: {
            /**
             * Format: int64
             * @description Units of the whole block that are not held.
             */
            active: number;
            /** @description The block's id. */
            block: string;
            /**
             * Format: int64
             * @description Units of the whole block that were committed.
             */
            inactive: number;
            items: components["schemas"]["Unit"][];
            /** @description The cursor of the next page; null on the last page. */
            next_cursor: string | null;
            /**
             * Format: int64
             * @description Units of the whole block that are held.
             */
            pending: number;
        };
        WindowDoc: {
            /** Format: date-time */
            end: string;
            /** Format: date-time */
            start: string;
        };
    };
    responses: {
        /** @description `malformed`: the body could not be read, or is not well-formed JSON in UTF-8. */
        "400-malformed": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "malformed";
                };
            };
        };
        /** @description `unauthorized`: a valid API key is needed: Authorization: Bearer hf_…. */
        "401-unauthorized": {
            headers: {
                "WWW-Authenticate": components["headers"]["WWW-Authenticate"];
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "unauthorized";
                };
            };
        };
        /**
         * @description `admission_required`: the variant requires an admission token, in the header Admission-Token.
         *
         *     `admission_refused`: the admission token is not valid: it is good once, until it expires, for its customer and its variant.
         *
         *     `forbidden`: the API key lacks the scope for this request.
         */
        "403-admission_required-admission_refused-forbidden": {
            headers: {
                "WWW-Authenticate": components["headers"]["WWW-Authenticate"];
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "admission_required" | "admission_refused" | "forbidden";
                };
            };
        };
        /** @description `forbidden`: the API key lacks the scope for this request. */
        "403-forbidden": {
            headers: {
                "WWW-Authenticate": components["headers"]["WWW-Authenticate"];
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "forbidden";
                };
            };
        };
        /** @description `origin_refused`: pages of this origin may not connect: add it to LIVE_ORIGINS. */
        "403-origin_refused": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "origin_refused";
                };
            };
        };
        /** @description `not_found`: the tenant has no such resource. */
        "404-not_found": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "not_found";
                };
            };
        };
        /** @description `method_not_allowed`: the path does not have this method, see Allow. */
        "405-method_not_allowed": {
            headers: {
                Allow: components["headers"]["Allow"];
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "method_not_allowed";
                };
            };
        };
        /** @description `below_reserved`: the variant would have fewer units than are reserved. */
        "409-below_reserved": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "below_reserved";
                };
            };
        };
        /**
         * @description `below_reserved`: the variant would have fewer units than are reserved.
         *
         *     `out_of_stock`: not so many units are free.
         */
        "409-below_reserved-out_of_stock": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "below_reserved" | "out_of_stock";
                };
            };
        };
        /**
         * @description `cart_empty`: the cart holds nothing.
         *
         *     `hold_expired`: a hold of the cart has expired: remove the item or add it again.
         *
         *     `checkout_in_progress`: a checkout of the cart is in progress: its holds are locked to it until it ends.
         *
         *     `lifetime_exceeded`: the hold would exceed the maximum lifetime of holds.
         */
        "409-cart_empty-hold_expired-checkout_in_progress-lifetime_exceeded": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "cart_empty" | "hold_expired" | "checkout_in_progress" | "lifetime_exceeded";
                };
            };
        };
        /** @description `checkout_in_progress`: a checkout of the cart is in progress: its holds are locked to it until it ends. */
        "409-checkout_in_progress": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "checkout_in_progress";
                };
            };
        };
        /** @description `conflicting_state`: the reservation, the checkout or the request is not in the status that the request needs. */
        "409-conflicting_state": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "conflicting_state";
                };
            };
        };
        /**
         * @description `conflicting_state`: the reservation, the checkout or the request is not in the status that the request needs.
         *
         *     `checkout_in_progress`: a checkout of the cart is in progress: its holds are locked to it until it ends.
         *
         *     `lifetime_exceeded`: the hold would exceed the maximum lifetime of holds.
         */
        "409-conflicting_state-checkout_in_progress-lifetime_exceeded": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "conflicting_state" | "checkout_in_progress" | "lifetime_exceeded";
                };
            };
        };
        /**
         * @description `conflicting_state`: the reservation, the checkout or the request is not in the status that the request needs.
         *
         *     `checkout_in_progress`: a checkout of the cart is in progress: its holds are locked to it until it ends.
         *
         *     `part_of_kit`: the units are held for a kit: remove the kit.
         */
        "409-conflicting_state-checkout_in_progress-part_of_kit": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "conflicting_state" | "checkout_in_progress" | "part_of_kit";
                };
            };
        };
        /**
         * @description `conflicting_state`: the reservation, the checkout or the request is not in the status that the request needs.
         *
         *     `checkout_in_progress`: a checkout of the cart is in progress: its holds are locked to it until it ends.
         *
         *     `return_exceeds`: not so many units of the reservation are committed, or not the named ones.
         */
        "409-conflicting_state-checkout_in_progress-return_exceeds": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "conflicting_state" | "checkout_in_progress" | "return_exceeds";
                };
            };
        };
        /** @description `not_a_block`: the id is that of a variant whose units are counted: its units have no ids. */
        "409-not_a_block": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "not_a_block";
                };
            };
        };
        /** @description `out_of_stock`: not so many units are free. */
        "409-out_of_stock": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "out_of_stock";
                };
            };
        };
        /**
         * @description `part_of_kit`: the units are held for a kit: remove the kit.
         *
         *     `checkout_in_progress`: a checkout of the cart is in progress: its holds are locked to it until it ends.
         */
        "409-part_of_kit-checkout_in_progress": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "part_of_kit" | "checkout_in_progress";
                };
            };
        };
        /**
         * @description `requests_pending`: the cart has requests that are not decided yet.
         *
         *     `checkout_in_progress`: a checkout of the cart is in progress: its holds are locked to it until it ends.
         *
         *     `limit_exceeded`: the cart or the customer would have more units than allowed.
         */
        "409-requests_pending-checkout_in_progress-limit_exceeded": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "requests_pending" | "checkout_in_progress" | "limit_exceeded";
                };
            };
        };
        /**
         * @description `requests_pending`: the cart has requests that are not decided yet.
         *
         *     `hold_expired`: a hold of the cart has expired: remove the item or add it again.
         *
         *     `cart_empty`: the cart holds nothing.
         *
         *     `checkout_in_progress`: a checkout of the cart is in progress: its holds are locked to it until it ends.
         */
        "409-requests_pending-hold_expired-cart_empty-checkout_in_progress": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "requests_pending" | "hold_expired" | "cart_empty" | "checkout_in_progress";
                };
            };
        };
        /** @description `too_large`: the body is larger than the limit of this operation. */
        "413-too_large": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "too_large";
                };
            };
        };
        /** @description `unsupported_media_type`: the body has a media type or an encoding that this operation does not accept. */
        "415-unsupported_media_type": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "unsupported_media_type";
                };
            };
        };
        /** @description `invalid`: the request has fields that are not valid. */
        "422-invalid": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "invalid";
                };
            };
        };
        /**
         * @description `invalid`: the request has fields that are not valid.
         *
         *     `idempotency_key_reused`: the idempotency key was used for a request with another method, path or body.
         */
        "422-invalid-idempotency_key_reused": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "invalid" | "idempotency_key_reused";
                };
            };
        };
        /** @description `upgrade_required`: this path is for WebSockets of version 13. */
        "426-upgrade_required": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "upgrade_required";
                };
            };
        };
        /** @description `over_limit`: the tenant has too much waiting already: nothing was written. */
        "429-over_limit": {
            headers: {
                "Retry-After": components["headers"]["Retry-After"];
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "over_limit";
                };
            };
        };
        /**
         * @description `over_limit`: the tenant has too much waiting already: nothing was written.
         *
         *     `over_budget`: the tenant or the customer has exceeded its rate limit: nothing was queued or counted.
         */
        "429-over_limit-over_budget": {
            headers: {
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                "Retry-After": components["headers"]["Retry-After"];
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "over_limit" | "over_budget";
                };
            };
        };
        /** @description `internal`: an internal error. */
        "500-internal": {
            headers: {
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "internal";
                };
            };
        };
        /** @description `not_ready`: the database does not respond, is not migrated, or has a sequence behind its rows. */
        "503-not_ready": {
            headers: {
                "Retry-After": components["headers"]["Retry-After"];
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "not_ready";
                };
            };
        };
        /** @description `overloaded`: the service is overloaded, or the database does not respond: nothing was done that a retry would repeat. */
        "503-overloaded": {
            headers: {
                "Retry-After": components["headers"]["Retry-After"];
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "overloaded";
                };
            };
        };
        /**
         * @description `overloaded`: the service is overloaded, or the database does not respond: nothing was done that a retry would repeat.
         *
         *     `cell_unavailable`: the database of the tenant does not respond: nothing was done.
         *
         *     `tenant_moving`: the tenant moves to another database: nothing was done, and a retry is served in a moment.
         */
        "503-overloaded-cell_unavailable-tenant_moving": {
            headers: {
                "Retry-After": components["headers"]["Retry-After"];
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "overloaded" | "cell_unavailable" | "tenant_moving";
                };
            };
        };
        /**
         * @description `overloaded`: the service is overloaded, or the database does not respond: nothing was done that a retry would repeat.
         *
         *     `cell_unavailable`: the database of the tenant does not respond: nothing was done.
         *
         *     `tenant_moving`: the tenant moves to another database: nothing was done, and a retry is served in a moment.
         *
         *     `outcome_unknown`: it is not known whether the request took effect: check before sending it again, and send an Idempotency-Key next time.
         */
        "503-overloaded-cell_unavailable-tenant_moving-outcome_unknown": {
            headers: {
                "Retry-After": components["headers"]["Retry-After"];
                "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"] & {
                    /** @enum {string} */
                    code: "overloaded" | "cell_unavailable" | "tenant_moving" | "outcome_unknown";
                };
            };
        };
    };
    parameters: never;
    requestBodies: never;
    headers: {
        /** @description The methods of the path. */
        Allow: string;
        /** @description true for a repetition of an earlier request. */
        "Idempotency-Replayed": "true";
        /** @description What remains of these limits, and after how many seconds more is available. */
        RateLimit: string;
        /** @description The rate limits of the `tenant` and the `customer`, as far as they have one: draft-ietf-httpapi-ratelimit-headers-10. With 202 and 200, except for a repetition, and with the problem `over_budget`. */
        "RateLimit-Policy": string;
        /** @description After how many whole seconds the request can be sent again. */
        "Retry-After": number;
        /** @description The scheme of the key. */
        "WWW-Authenticate": string;
        /** @description Identifies the request in the audit log, the logs and the traces. */
        "X-Correlation-Id": string;
    };
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    health: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Alive"];
                };
            };
            503: components["responses"]["503-not_ready"];
        };
    };
    livez: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Alive"];
                };
            };
            /** @description Error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    metrics: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    readyz: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Alive"];
                };
            };
            503: components["responses"]["503-not_ready"];
        };
    };
    "mint-admission": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["MintAdmissionBody"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Admission"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "get-cart": {
        parameters: {
            query?: {
                /** @description How many reservations, and how many requests, at most; 1000 if left out. */
                limit?: number;
                /** @description next_cursor of the previous page. */
                cursor?: string;
            };
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path: {
                /** @description The cart's id. */
                cart_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Cart"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "remove-cart": {
        parameters: {
            query?: {
                /** @description Why; cart_removed if left out. */
                reason?: "cart_removed" | "payment_failed" | "abandoned" | "operator";
            };
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path: {
                /** @description The cart's id. */
                cart_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Removed"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            409: components["responses"]["409-checkout_in_progress"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            429: components["responses"]["429-over_limit"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "checkout-cart": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path: {
                /** @description The cart's id. */
                cart_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CheckedOut"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            409: components["responses"]["409-requests_pending-hold_expired-cart_empty-checkout_in_progress"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            429: components["responses"]["429-over_limit"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "extend-cart": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path: {
                /** @description The cart's id. */
                cart_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ExtendBody"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Extended"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            409: components["responses"]["409-cart_empty-hold_expired-checkout_in_progress-lifetime_exceeded"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            429: components["responses"]["429-over_limit"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "add-item": {
        parameters: {
            query?: never;
            header?: {
                /** @description wait=N waits up to N seconds, at most 30, for the request to be decided. */
                Prefer?: string;
                /** @description The customer to whom max_per_customer applies, and with `METERED_COMMANDS_ENABLED` the rate, and the subject of the admission token. The cart's id if left out. */
                "Customer-Id"?: string;
                /** @description The admission token, for a variant whose stock has the admission `token`. It is spent when the request is queued. A repetition spends nothing, and a quantity of no more than the cart holds needs no token. Ignored for other variants, and without `METERED_COMMANDS_ENABLED`. */
                "Admission-Token"?: string;
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path: {
                /** @description The cart's id. */
                cart_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AddItemBody"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    /** @description The status_url. */
                    Location?: string;
                    /** @description The wait that was applied. */
                    "Preference-Applied"?: string;
                    RateLimit: components["headers"]["RateLimit"];
                    "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                    /** @description When to read the request, in whole seconds; with 202. */
                    "Retry-After"?: number;
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Request"];
                };
            };
            /** @description Accepted */
            202: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    /** @description The status_url. */
                    Location?: string;
                    /** @description The wait that was applied. */
                    "Preference-Applied"?: string;
                    RateLimit: components["headers"]["RateLimit"];
                    "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                    /** @description When to read the request, in whole seconds; with 202. */
                    "Retry-After"?: number;
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Accepted"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-admission_required-admission_refused-forbidden"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            429: components["responses"]["429-over_limit-over_budget"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "remove-item": {
        parameters: {
            query?: {
                /** @description Why; cart_removed if left out. */
                reason?: "cart_removed" | "payment_failed" | "abandoned" | "operator";
            };
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path: {
                /** @description The cart's id. */
                cart_id: string;
                /** @description The variant's id. */
                variant_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Removed"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            409: components["responses"]["409-part_of_kit-checkout_in_progress"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            429: components["responses"]["429-over_limit"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "set-item": {
        parameters: {
            query?: never;
            header?: {
                /** @description wait=N waits up to N seconds, at most 30, for the request to be decided. */
                Prefer?: string;
                /** @description The customer to whom max_per_customer applies, and with `METERED_COMMANDS_ENABLED` the rate, and the subject of the admission token. The cart's id if left out. */
                "Customer-Id"?: string;
                /** @description The admission token, for a variant whose stock has the admission `token`. It is spent when the request is queued. A repetition spends nothing, and a quantity of no more than the cart holds needs no token. Ignored for other variants, and without `METERED_COMMANDS_ENABLED`. */
                "Admission-Token"?: string;
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path: {
                /** @description The cart's id. */
                cart_id: string;
                /** @description The variant's id. */
                variant_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SetItemBody"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    /** @description The status_url. */
                    Location?: string;
                    /** @description The wait that was applied. */
                    "Preference-Applied"?: string;
                    RateLimit: components["headers"]["RateLimit"];
                    "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                    /** @description When to read the request, in whole seconds; with 202. */
                    "Retry-After"?: number;
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Request"];
                };
            };
            /** @description Accepted */
            202: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    /** @description The status_url. */
                    Location?: string;
                    /** @description The wait that was applied. */
                    "Preference-Applied"?: string;
                    RateLimit: components["headers"]["RateLimit"];
                    "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                    /** @description When to read the request, in whole seconds; with 202. */
                    "Retry-After"?: number;
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Accepted"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-admission_required-admission_refused-forbidden"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            429: components["responses"]["429-over_limit-over_budget"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "remove-kit": {
        parameters: {
            query?: {
                /** @description Why; cart_removed if left out. */
                reason?: "cart_removed" | "payment_failed" | "abandoned" | "operator";
            };
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path: {
                /** @description The cart's id. */
                cart_id: string;
                /** @description The kit's id. */
                kit_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Removed"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            409: components["responses"]["409-checkout_in_progress"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "transfer-cart": {
        parameters: {
            query?: never;
            header?: {
                /** @description The customer whose limits count the holds from then on. If left out, a hold keeps its customer, and one without counts for the cart. */
                "Customer-Id"?: string;
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path: {
                /** @description The cart's id. */
                cart_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["TransferCartBody"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TransferredCart"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            409: components["responses"]["409-requests_pending-checkout_in_progress-limit_exceeded"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "begin-checkout": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["BeginCheckoutBody"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    /** @description true for a repetition of an earlier request. */
                    "Idempotency-Replayed"?: string;
                    /** @description The status_url. */
                    Location?: string;
                    /** @description When to read the checkout, in whole seconds; with 202. */
                    "Retry-After"?: number;
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Checkout"];
                };
            };
            /** @description Accepted */
            202: {
                headers: {
                    /** @description true for a repetition of an earlier request. */
                    "Idempotency-Replayed"?: string;
                    /** @description The status_url. */
                    Location?: string;
                    /** @description When to read the checkout, in whole seconds; with 202. */
                    "Retry-After"?: number;
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Checkout"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            409: components["responses"]["409-requests_pending-hold_expired-cart_empty-checkout_in_progress"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "get-checkout": {
        parameters: {
            query?: {
                /** @description Wait up to this many seconds for the checkout to end. */
                wait?: number;
            };
            header?: {
                /** @description The ETag of an earlier response. */
                "If-None-Match"?: string;
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path: {
                checkout_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    /** @description Identifies this state of the checkout. */
                    ETag?: string;
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Checkout"];
                };
            };
            /** @description Not Modified */
            304: {
                headers: {
                    /** @description Identifies this state of the checkout. */
                    ETag?: string;
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content?: never;
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "answer-checkout": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path: {
                checkout_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PaymentBody"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Checkout"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            409: components["responses"]["409-conflicting_state"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "get-group": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path: {
                /** @description The group's id. */
                group: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Group"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "put-group": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path: {
                /** @description The group's id. */
                group: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["PutGroupBody"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Group"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "read-key": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Key"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "list-kits": {
        parameters: {
            query?: {
                /** @description How many at most; 100 if left out. */
                limit?: number;
                /** @description next_cursor of the previous page. */
                cursor?: string;
            };
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KitPage"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "get-kit": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path: {
                /** @description The kit's id. */
                kit_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Kit"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "put-kit": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path: {
                /** @description The kit's id. */
                kit_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PutKitBody"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Kit"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "delete-kit": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path: {
                /** @description The kit's id. */
                kit_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedKit"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "list-lanes": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Lanes"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "pin-variant": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path: {
                /** @description The variant's id. */
                variant_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Pin"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "unpin-variant": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path: {
                /** @description The variant's id. */
                variant_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Pin"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "control-lane": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path: {
                /** @description The name of a lane, as GET /v1/lanes lists it. */
                lane: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["ControlLaneBody"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LaneState"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "connect-live": {
        parameters: {
            query: {
                /** @description A ticket of this service, unused. */
                ticket: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Switching Protocols */
            101: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `malformed`: the upgrade to a WebSocket is not valid. */
            400: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"] & {
                        /** @enum {string} */
                        code: "malformed";
                    };
                };
            };
            /** @description `unauthorized`: a live connection needs a ticket that was not used, within a minute: POST /v1/live/tickets. */
            401: {
                headers: {
                    "WWW-Authenticate": components["headers"]["WWW-Authenticate"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"] & {
                        /** @enum {string} */
                        code: "unauthorized";
                    };
                };
            };
            403: components["responses"]["403-origin_refused"];
            426: components["responses"]["426-upgrade_required"];
            /** @description `over_limit`: the tenant has too many live connections, or the key or the tenant too many unused tickets. */
            429: {
                headers: {
                    "Retry-After": components["headers"]["Retry-After"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"] & {
                        /** @enum {string} */
                        code: "over_limit";
                    };
                };
            };
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded"];
        };
    };
    "mint-live-ticket": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Created */
            201: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Ticket"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            /** @description `over_limit`: the tenant has too many live connections, or the key or the tenant too many unused tickets. */
            429: {
                headers: {
                    "Retry-After": components["headers"]["Retry-After"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"] & {
                        /** @enum {string} */
                        code: "over_limit";
                    };
                };
            };
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "get-ops-history": {
        parameters: {
            query: {
                kind: "cart" | "request" | "reservation" | "variant";
                /** @description Its id. */
                id: string;
                /** @description Only events with a lower audit_id: the first one of the response before. */
                before?: number;
            };
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Timeline"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    overview: {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Overview"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    search: {
        parameters: {
            query: {
                /** @description The id of a cart, a request or a reservation, or the beginning of the id of a variant. */
                q: string;
            };
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Search"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "get-request": {
        parameters: {
            query?: {
                /** @description Wait up to this many seconds for the request to finish. */
                wait?: number;
            };
            header?: {
                /** @description The ETag of an earlier response. */
                "If-None-Match"?: string;
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path: {
                request_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    /** @description Identifies this state of the request. */
                    ETag?: string;
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Request"];
                };
            };
            /** @description Not Modified */
            304: {
                headers: {
                    /** @description Identifies this state of the request. */
                    ETag?: string;
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content?: never;
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "stream-request": {
        parameters: {
            query?: never;
            header?: {
                /** @description The id of the last event that the client received. That event is not sent again. */
                "Last-Event-ID"?: string;
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path: {
                request_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": {
                        data: components["schemas"]["Request"];
                        /** @enum {string} */
                        event: "request";
                        id: string;
                    }[];
                };
            };
            /** @description No Content */
            204: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content?: never;
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            422: components["responses"]["422-invalid"];
            429: components["responses"]["429-over_limit"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "retry-request": {
        parameters: {
            query?: never;
            header?: {
                /** @description wait=N waits up to N seconds, at most 30, for the request to be decided. */
                Prefer?: string;
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path: {
                request_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    /** @description The status_url. */
                    Location?: string;
                    /** @description The wait that was applied. */
                    "Preference-Applied"?: string;
                    /** @description When to read the request, in whole seconds; with 202. */
                    "Retry-After"?: number;
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Request"];
                };
            };
            /** @description Accepted */
            202: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    /** @description The status_url. */
                    Location?: string;
                    /** @description The wait that was applied. */
                    "Preference-Applied"?: string;
                    /** @description When to read the request, in whole seconds; with 202. */
                    "Retry-After"?: number;
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Accepted"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            409: components["responses"]["409-conflicting_state"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            429: components["responses"]["429-over_limit"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "get-reservation": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path: {
                reservation_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Reservation"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "commit-reservation": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path: {
                reservation_id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["PartBody"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Reservation"] | components["schemas"]["CommittedPart"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            409: components["responses"]["409-conflicting_state-checkout_in_progress-part_of_kit"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            429: components["responses"]["429-over_limit"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "extend-reservation": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path: {
                reservation_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ExtendBody"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Reservation"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            409: components["responses"]["409-conflicting_state-checkout_in_progress-lifetime_exceeded"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            429: components["responses"]["429-over_limit"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "get-reservation-history": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path: {
                reservation_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["History"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "release-reservation": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path: {
                reservation_id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["ReleaseBody"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Reservation"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            409: components["responses"]["409-conflicting_state-checkout_in_progress-part_of_kit"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            429: components["responses"]["429-over_limit"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "return-reservation": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path: {
                reservation_id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["ReturnBody"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Reservation"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            409: components["responses"]["409-conflicting_state-checkout_in_progress-return_exceeds"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            429: components["responses"]["429-over_limit"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "list-stocks": {
        parameters: {
            query?: {
                /** @description Only these variants, on one page. Not with the other parameters. */
                variant_id?: string[] | null;
                /** @description Only the variants of the group. */
                group?: string;
                /** @description How many at most; 100 if left out. */
                limit?: number;
                /** @description next_cursor of the previous page. */
                cursor?: string;
            };
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StockPage"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "import-stocks": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/x-ndjson": string;
                "text/csv": string;
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ImportReport"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "transfer-stock": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["TransferStockBody"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Transferred"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            409: components["responses"]["409-out_of_stock"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "get-stock": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path: {
                /** @description The variant's id. */
                variant_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Stock"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "put-stock": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path: {
                /** @description The variant's id. */
                variant_id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["PutStockBody"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Stock"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            409: components["responses"]["409-below_reserved"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "delete-stock": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path: {
                /** @description The variant's id. */
                variant_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Deleted"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            409: components["responses"]["409-below_reserved"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "adjust-stock": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path: {
                /** @description The variant's id. */
                variant_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AdjustStockBody"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Stock"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            409: components["responses"]["409-below_reserved"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "list-allotments": {
        parameters: {
            query?: {
                /** @description How many at most; 100 if left out. */
                limit?: number;
                /** @description next_cursor of the previous page. */
                cursor?: string;
            };
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path: {
                /** @description The variant's id. */
                variant_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AllotmentPage"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "get-allotment": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path: {
                /** @description The variant's id. */
                variant_id: string;
                /** @description The allotment's id, unique within its variant. */
                allotment_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Allotment"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "put-allotment": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path: {
                /** @description The variant's id. */
                variant_id: string;
                /** @description The allotment's id, unique within its variant. */
                allotment_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PutAllotmentBody"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Allotment"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            409: components["responses"]["409-below_reserved-out_of_stock"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "delete-allotment": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
                /** @description Makes a repetition of the request safe. */
                "Idempotency-Key"?: string;
            };
            path: {
                /** @description The variant's id. */
                variant_id: string;
                /** @description The allotment's id, unique within its variant. */
                allotment_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Idempotency-Replayed": components["headers"]["Idempotency-Replayed"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EndedAllotment"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            422: components["responses"]["422-invalid-idempotency_key_reused"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving-outcome_unknown"];
        };
    };
    "stream-stock": {
        parameters: {
            query?: never;
            header?: {
                /** @description The id of the last event that the client received. That event is not sent again. */
                "Last-Event-ID"?: string;
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path: {
                /** @description The variant's id. */
                variant_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": {
                        data: components["schemas"]["Availability"];
                        /** @enum {string} */
                        event: "snapshot" | "delta" | "rebuild";
                        id: string;
                    }[];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            422: components["responses"]["422-invalid"];
            /**
             * @description `over_limit`: the tenant has too much waiting already: nothing was written.
             *
             *     `over_limit`: the tenant has too many live connections, or the key or the tenant too many unused tickets.
             */
            429: {
                headers: {
                    "Retry-After": components["headers"]["Retry-After"];
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"] & {
                        /** @enum {string} */
                        code: "over_limit";
                    };
                };
            };
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "list-units": {
        parameters: {
            query?: {
                /** @description How many at most; 100 if left out. */
                limit?: number;
                /** @description next_cursor of the previous page. */
                cursor?: string;
            };
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path: {
                /** @description The block's id. */
                block: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["UnitPage"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            409: components["responses"]["409-not_a_block"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "import-units": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path: {
                /** @description The block's id. */
                block: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/x-ndjson": string;
                "text/csv": string;
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["UnitImportReport"];
                };
            };
            400: components["responses"]["400-malformed"];
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            409: components["responses"]["409-not_a_block"];
            413: components["responses"]["413-too_large"];
            415: components["responses"]["415-unsupported_media_type"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
    "get-unit": {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back. */
                "X-Correlation-Id"?: string;
            };
            path: {
                /** @description The block's id. */
                block: string;
                /** @description The unit's id, unique within its block. */
                unit_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "X-Correlation-Id": components["headers"]["X-Correlation-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["UnitDetail"];
                };
            };
            401: components["responses"]["401-unauthorized"];
            403: components["responses"]["403-forbidden"];
            404: components["responses"]["404-not_found"];
            409: components["responses"]["409-not_a_block"];
            422: components["responses"]["422-invalid"];
            500: components["responses"]["500-internal"];
            503: components["responses"]["503-overloaded-cell_unavailable-tenant_moving"];
        };
    };
}
